"""What is asked of detectors, how it is answered, and the interfaces behind which Ray stands."""
