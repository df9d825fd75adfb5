"""What callers see: the HTTP front end and the command line."""
