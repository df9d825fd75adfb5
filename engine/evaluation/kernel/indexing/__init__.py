"""Evaluates those of many rules that an event can concern."""
