"""The feed of a detector: the numbered firings of its rules with `notify`, as far back as there is room."""
