"""Tensors to tensors: the boxes of the lecture slides. Of regard, imports `shapes` and `errors` only."""
