"""Batches on a socket between that process and an actor."""
