"""JSON text to values with spans, and conditions to JSON documents."""
