"""Output shared by several commands: tables, explained rules, and escaping."""
