"""Evaluate bodies and their answers: JSON, msgpack, lines."""
