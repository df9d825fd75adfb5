"""Below ASGI: connections, their limits and time-outs, and HTTP/1.1. The only code that uses Hypercorn."""
