"""Explains why a text cannot be read, and what was probably meant."""
