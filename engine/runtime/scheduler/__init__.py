"""Decides which worker has which detector, and on which nodes workers are: in the directory's process."""
