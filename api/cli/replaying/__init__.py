"""Sends recordings to a detector in batches, and counts the results."""
