"""The layer below ASGI: connections, limits, timeouts and HTTP/1.1. Only this package uses Hypercorn."""
