"""The syntax of RE2 as a tree."""
