"""Commands that run a service, and commands for its operators."""
