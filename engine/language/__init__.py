"""What a condition is, and how it is written: types, JSON, text."""
