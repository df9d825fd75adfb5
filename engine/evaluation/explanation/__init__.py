"""Explains an event without recording it: why each rule fires or not, and until when that holds."""
