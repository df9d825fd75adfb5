"""What a detector remembers, by key: stored, weighed, expired, evicted."""
