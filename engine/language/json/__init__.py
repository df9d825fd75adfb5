"""Reads JSON text as values with spans, and writes conditions as JSON documents."""
