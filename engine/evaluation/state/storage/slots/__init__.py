"""What a key table keeps of its slots besides their columns."""
