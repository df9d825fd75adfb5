"""Events of callers in the same process, and their outcomes: verdicts, messages, refusals."""
