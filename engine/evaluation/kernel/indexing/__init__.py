"""Evaluates, of many rules, those that an event can concern."""
