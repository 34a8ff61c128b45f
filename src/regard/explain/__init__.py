"""What a model looked at and how its training went, as text, tables and pictures."""
