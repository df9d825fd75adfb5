"""The state of a detector to bytes and back, older versions included."""
