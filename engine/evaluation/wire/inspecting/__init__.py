"""Requests for explanations, timelines, states and comparisons, and their answers as JSON."""
