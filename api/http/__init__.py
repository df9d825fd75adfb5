"""The application: from a request to its response. The only code that uses Quart."""
