"""JSON text to values that know where they stand in it."""
