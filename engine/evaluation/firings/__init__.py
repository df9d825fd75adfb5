"""The feed of a detector: numbered firings of its rules with `notify`, bounded in number and size."""
