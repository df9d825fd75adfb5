"""From an event to the rules and memories that it concerns: the one place where plan and state meet."""
