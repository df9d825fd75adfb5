"""Request bodies: reading, their memory, discarding the rest, and NDJSON streams."""
