"""Hints and warnings about valid conditions that probably do not mean what was intended."""
