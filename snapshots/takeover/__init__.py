"""The takeover of a folder: an owner claims it, plans the recovery, and reads the records."""
