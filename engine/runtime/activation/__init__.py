"""The active detector of a worker's process: its mailbox, its queue, and when it is saved and passivated."""
