"""The processes of the service: started, watched and ended."""
