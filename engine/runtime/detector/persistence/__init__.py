"""A detector on disk: its journal entries and snapshots, and how they are replayed."""
