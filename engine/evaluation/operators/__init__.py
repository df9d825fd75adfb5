"""What each operator of the language remembers, and when that makes it true."""
