"""Bodies of evaluations and their answers, in JSON, msgpack and NDJSON."""
