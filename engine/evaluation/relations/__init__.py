"""Relations that are stored with a detector: sets of tuples that conditions ask about."""
