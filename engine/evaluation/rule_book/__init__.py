"""The rules of a detector, with their drafts, how often each fired, and the work to prepare them."""
