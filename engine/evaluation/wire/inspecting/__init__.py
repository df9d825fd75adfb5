"""Bodies that ask for explanations, timelines, states and comparisons, and the answers as JSON."""
