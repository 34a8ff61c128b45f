"""Inside a model while it reads one text: tokens, embeddings, every head, states, and what comes out.

Numbers only, all of the forward pass itself; who draws them is another's business.
"""
