"""The words of a text: keywords, names and durations."""
