"""The parts of one request: head, query, timeout and log record."""
