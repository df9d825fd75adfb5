"""Tries rules on recordings, and tests them, in this process without a service."""
