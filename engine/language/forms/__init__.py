"""The forms of conditions: their JSON and their text."""
