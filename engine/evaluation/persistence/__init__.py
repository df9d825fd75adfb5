"""Converts the state of a detector to bytes and back; reads older versions too."""
