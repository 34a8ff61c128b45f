"""From raw data to batches: catalogue, download, readers, tokenizers, prepared folders, loaders."""
