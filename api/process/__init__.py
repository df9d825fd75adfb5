"""The processes of the service: how they are started, watched and ended."""
