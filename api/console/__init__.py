"""The console: a web page in static files, which uses only the HTTP interface of the service."""
