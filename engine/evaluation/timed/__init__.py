"""Timed rules, which also fire when time alone makes them true."""
