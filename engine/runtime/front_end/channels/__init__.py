"""A front end's channels to detectors, and the requests that wait in them."""
