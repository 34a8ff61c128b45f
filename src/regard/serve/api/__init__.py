"""`regard serve`: models over HTTP for programs. One process speaks HTTP, another runs the models."""
