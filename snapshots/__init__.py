"""What must not be lost: files written in one step, checked when they are read. Knows nothing of rules."""
