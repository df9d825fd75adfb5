"""Which worker has which detector, and on which node the workers are."""
