"""What the API says of itself: operations, request and reply types, the envelope, OpenAPI."""
