"""The buckets of rules and memories, and how an event finds its buckets."""
