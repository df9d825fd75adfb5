"""The active detectors of a worker process: their queues, and when each is saved and passivated."""
