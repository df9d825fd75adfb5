"""Durable storage: journals, snapshots, and the takeover of a folder. Knows neither rules nor Ray."""
