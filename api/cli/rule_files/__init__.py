"""Rules files: their members, reading and writing."""
