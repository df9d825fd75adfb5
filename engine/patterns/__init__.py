"""Regular expressions from untrusted callers: bounds on their cost, and searches for many at once."""
