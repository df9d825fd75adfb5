"""Starts, joins, watches and calls Ray. No other package imports Ray."""
