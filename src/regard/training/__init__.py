"""From settings to a trained model folder: the loop and what it needs."""
