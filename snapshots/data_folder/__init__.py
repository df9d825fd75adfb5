"""The data folder as a whole: its identity, its lock, its permissions and its file system."""
