"""Generates the code of conditions."""
