"""JSON to conditions: size, validity, and every violation with its place."""
