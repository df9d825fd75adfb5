"""Starts, joins, watches and calls Ray. No other code imports it."""
