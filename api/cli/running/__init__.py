"""Commands that run a service, and those for its operators."""
