"""The operators that look for a single event."""
