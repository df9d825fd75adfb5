"""Bounds of what a detector remembers: expiry of slices, and eviction."""
