"""State to bytes and back, and from older versions."""
