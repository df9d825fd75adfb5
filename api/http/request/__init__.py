"""One request: its head, its query, its timeout, and its line in the log."""
