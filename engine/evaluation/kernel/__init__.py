"""Evaluates events: decides what is true, and then commits what that writes."""
