"""What several commands print: tables, progress, explained rules."""
