"""What leaves the memory: keys that have expired, keys past the bounds, and entries of no use."""
