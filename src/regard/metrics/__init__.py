"""A finished system to a number, with its uncertainty and the signature that lets others repeat it."""
