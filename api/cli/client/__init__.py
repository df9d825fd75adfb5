"""A client of the running service, for the commands that call it."""
