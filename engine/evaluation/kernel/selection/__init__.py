"""The members that an event selects one by one, among them those with a range of a fact's value."""
