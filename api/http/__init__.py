"""The application: from a request to its response. Only this package uses Quart."""
