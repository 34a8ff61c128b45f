"""Experiments that demonstrate a lecture: why recurrent networks forget, measured and drawn."""
