"""Evaluates events: decides all verdicts, and then commits the changes of state."""
