"""What would turn a verdict: the fewest predicates that an event could change, or time that passes."""
