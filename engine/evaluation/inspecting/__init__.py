"""Requests for the state of a detector, and their answers as JSON."""
