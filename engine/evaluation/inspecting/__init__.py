"""What callers ask about a detector, and the answers as JSON."""
