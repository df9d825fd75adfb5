"""`rule-detector sigma`. Only `command.py` can be imported without the extra `sigma`."""
