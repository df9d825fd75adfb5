"""Batches on a socket between the broker's process and a worker."""
