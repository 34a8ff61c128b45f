"""Batch to loss: which positions count, and how. Sums and counts, never means."""
