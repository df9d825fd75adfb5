"""The application: from a request to its reply."""
