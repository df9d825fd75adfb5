"""A data folder, read from outside without a service."""
