"""Validates JSON documents as conditions: size, validity, and every violation with its place."""
