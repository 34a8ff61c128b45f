"""From raw text to batches: catalog and fetch, pairs and documents, tokenizers, prepared folders, the loaders."""
