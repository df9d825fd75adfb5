"""The buckets of rules and memories that an event meets."""
