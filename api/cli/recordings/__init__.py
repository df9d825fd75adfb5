"""Reads recordings from files or a pipe: NDJSON, CSV or lines of text become events with a time."""
