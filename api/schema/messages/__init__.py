"""The types of request bodies and results: for decoding, validation and the OpenAPI document."""
