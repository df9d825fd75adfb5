"""The description of the API: operations, types of requests and responses, envelope and OpenAPI."""
