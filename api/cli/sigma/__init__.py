"""`rule-detector sigma`: only `command.py` is imported without the extra `sigma`."""
