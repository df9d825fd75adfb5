"""Regular expressions of untrusted callers: limits on their cost, and searches for many at once."""
