"""What a detector remembers, by path of keys and by key."""
