"""Logits to ids: greedy, sampled, beam."""
