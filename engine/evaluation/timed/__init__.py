"""Timed rules: they also fire when time alone makes them true."""
