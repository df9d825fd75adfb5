"""Writing as an owner: the journal, snapshots, and the removal of obsolete files."""
