"""Changes of rules: many at once, what they keep of histories, and the versions that they make."""
