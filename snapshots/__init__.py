"""Durable storage: journals, snapshots, and the takeover of a folder. Independent of rules and Ray."""
