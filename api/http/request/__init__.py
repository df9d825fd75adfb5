"""What belongs to one request: head, query, timeout, log line."""
