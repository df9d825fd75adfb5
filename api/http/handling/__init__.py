"""What operations do: the handlers, and the parts of an answer that are made here."""
