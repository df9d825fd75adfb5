"""What processes measure and tell of themselves."""
