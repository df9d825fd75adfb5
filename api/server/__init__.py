"""Below ASGI: connections, their limits and time-outs, and HTTP/1.1 on them. The only user of Hypercorn."""
