"""Commands for the objects of a running service: detectors, rules, relations and tokens."""
