"""The nodes: which are alive, how full each is, and which one gets the next worker."""
