"""The semantics of conditions: verdicts over a stream of events, without a clock, a disk or Ray."""
