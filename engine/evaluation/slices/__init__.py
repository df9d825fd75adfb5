"""The temporal state of a detector, by path of keys and by key."""
