"""What is wrong with a text that cannot be read, and what was probably meant."""
