"""Bounds on the temporal state: expiry and eviction of slices."""
