"""Commands for what a running service has: detectors, rules and tokens."""
