"""Terms: of the event itself, of its time, and of single events before."""
