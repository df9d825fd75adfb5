"""What a condition means: verdicts over a stream of events. Pure: no clock, no disk, no Ray."""
