"""What a valid condition probably does not mean."""
