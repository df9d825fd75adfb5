"""The bytes of every file, and back. Pure: opens no file."""
