"""The feed of a detector: what its rules that notify have fired, numbered, as far back as there is room."""
