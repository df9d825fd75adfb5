"""Converts the state of a detector to bytes and back. Reads older versions, too."""
