"""What would turn a verdict: the fewest predicates that an event could change."""
