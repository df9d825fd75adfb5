"""Workers: how they are started, reused, watched and replaced, and the nodes that they run on."""
