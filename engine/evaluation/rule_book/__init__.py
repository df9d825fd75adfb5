"""The rules of a detector, their drafts, and the numbers of their firings."""
