"""Traces: the ids that callers send, and a span of each request for a collector."""
