"""A detector between two events: what it holds, and what the histories of its rules say now."""
