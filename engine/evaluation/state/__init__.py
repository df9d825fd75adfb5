"""The memories of a detector: storage by key, sizes, expiry, eviction."""
