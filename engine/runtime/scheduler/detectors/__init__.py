"""The detectors: which worker has each one, and when another gets its slot."""
