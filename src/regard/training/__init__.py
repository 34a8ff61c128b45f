"""From settings to a trained model folder: the loop, and the few things it needs."""
