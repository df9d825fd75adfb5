"""Reads a data folder from outside: its contents and its damage."""
