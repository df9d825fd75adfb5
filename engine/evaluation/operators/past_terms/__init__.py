"""Terms that look back."""
