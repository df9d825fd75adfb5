"""The operators that count events, or compute with their values."""
