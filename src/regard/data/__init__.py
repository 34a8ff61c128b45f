"""From raw text to batches: catalog and fetch, pairs of lines, pieces, prepared folders, the loader."""
