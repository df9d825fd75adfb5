"""Finds the rules and memories that an event is evaluated for, and evaluates it for them."""
