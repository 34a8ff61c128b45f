"""Tensors to tensors: the boxes of the lecture slides. Imports nothing of ours but `shapes` and `errors`."""
