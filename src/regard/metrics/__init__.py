"""Scores of finished systems, with intervals and the signatures that make them repeatable."""
