"""The console: a page for people, as static files. It speaks to the service over the HTTP interface only."""
