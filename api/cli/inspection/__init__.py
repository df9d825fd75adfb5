"""A data folder read from outside: what it holds and what in it is damaged."""
