"""What is asked of a detector: the operation, where it goes, and the id of its request."""
