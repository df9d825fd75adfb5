"""Recordings read from files or a pipe: NDJSON or CSV to events with a time."""
