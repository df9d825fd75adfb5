"""Terms: of the event itself, of its time, and of single earlier events."""
