"""Events as callers in the same process give them, and their outcomes: verdicts, messages, refusals."""
