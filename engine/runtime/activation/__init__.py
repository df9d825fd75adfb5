"""The active detectors of a worker's process: their queues, and when each is saved and passivated."""
