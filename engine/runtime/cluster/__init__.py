"""Ray: started, joined, watched, and called. The only code that imports it."""
