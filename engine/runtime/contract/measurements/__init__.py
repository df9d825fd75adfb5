"""What processes measure and report of themselves."""
