"""The processes of the service that are Ray actors: the directory and the workers."""
