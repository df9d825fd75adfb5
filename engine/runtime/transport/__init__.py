"""The protocol between front ends, the scheduler and workers: messages on sockets."""
