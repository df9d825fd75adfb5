"""Tokens, detectors and leases, and each front end's cache of them."""
