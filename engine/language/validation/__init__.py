"""Documents to conditions, with every violation and its place."""
