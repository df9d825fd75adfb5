"""Delivers what the feeds of detectors tell to a webhook, a file or standard output."""
