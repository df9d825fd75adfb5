"""The handlers of the operations, and what they share out to files of their own."""
