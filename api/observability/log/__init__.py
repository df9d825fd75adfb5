"""The log: its format, repeated lines, and refused requests."""
