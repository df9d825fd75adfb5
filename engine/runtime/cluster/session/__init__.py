"""A session with Ray: started or joined, protected, watched and left."""
