"""Messages on sockets between front ends, the supervisor and workers: one protocol."""
