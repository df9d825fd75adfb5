"""Files of rules: what they may hold, how they are read, and how they are written."""
