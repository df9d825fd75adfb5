"""The condition language: the Condition types, and conditions as text and as JSON."""
