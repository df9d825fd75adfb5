"""Which worker has which detector: activation slots, workers, leases."""
