"""A running service, as commands call it."""
