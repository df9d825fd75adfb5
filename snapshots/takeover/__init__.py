"""How an owner takes a folder over, and what it recovers from it."""
