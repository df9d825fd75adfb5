"""Detectors in and out of memory: queues, activation slots, workers."""
