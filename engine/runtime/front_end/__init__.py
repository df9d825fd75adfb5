"""A front end inside: its ways to the scheduler and to detectors, and the memory of its callers."""
