"""The worker processes: started, reused, watched and replaced."""
