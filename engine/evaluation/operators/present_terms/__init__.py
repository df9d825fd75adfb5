"""Terms whose values the event and its time decide."""
