"""Regular expressions from strangers: what they may cost, and many searched at once."""
