"""Request bodies: read, bounded, discarded, and cut into lines."""
