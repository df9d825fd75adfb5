"""Memory by key: the keys of a path, and for each node a column of times or of records."""
