"""Changes of rules: several at once, which histories they keep, and the versions of a rule."""
