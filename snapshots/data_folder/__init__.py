"""The data folder as a whole: its identity, its lock, and who may write to it."""
