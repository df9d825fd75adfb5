"""Recorded events: read from files, sent in batches, and what came of them."""
