"""Relations stored with a detector: sets of tuples that conditions use."""
