"""The bytes of every file, and back. Pure: no file is opened here."""
