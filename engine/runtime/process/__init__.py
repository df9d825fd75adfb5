"""Process-wide concerns: memory, temporary files, the environment, and other processes."""
