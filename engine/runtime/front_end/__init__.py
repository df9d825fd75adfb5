"""The inside of a front end: its connections to the scheduler and to detectors, and its memory budget."""
