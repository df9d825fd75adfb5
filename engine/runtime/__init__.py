"""Where detectors live: Ray actors, their queues, and the directory that knows them."""
