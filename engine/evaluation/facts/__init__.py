"""The facts of an event: names, values, and look-ups that all rules share."""
