"""Tokens, detectors and leases, and the copy that each front end keeps of them."""
