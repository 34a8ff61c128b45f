"""What a model attends to, how its training went and what it costs, as text, tables and pictures."""
