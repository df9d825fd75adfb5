"""The past as an event finds it: what it makes of nodes that look back, and until when."""
