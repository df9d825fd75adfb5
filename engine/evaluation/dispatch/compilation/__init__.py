"""Writes rules and the updates of memories as Python, and compiles it into functions."""
