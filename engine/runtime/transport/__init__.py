"""Messages on sockets between front ends, the scheduler and workers: one protocol."""
