"""HTTP/1.1 without a socket: bytes to requests, requests to ASGI, responses to bytes."""
