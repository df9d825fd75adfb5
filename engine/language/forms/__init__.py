"""The forms of a condition: how each looks in JSON and in text."""
