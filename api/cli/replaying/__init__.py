"""Recordings sent to a detector in batches, and what came of them."""
