"""From conditions to code: what a condition remembers, when it is evaluated, its shape, its source."""
