"""Delivers the firings in the feeds of detectors to a webhook, a file or standard output."""
