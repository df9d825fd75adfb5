"""The commands for operators."""
