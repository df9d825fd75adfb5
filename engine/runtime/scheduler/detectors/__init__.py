"""The placed detectors: which worker has each one, and when another one gets its slot."""
