"""Below ASGI: one connection, its limits and time-outs. The only code that uses Hypercorn's inside."""
