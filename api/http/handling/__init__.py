"""The handling of the longer operations, from the query or body of a request to the response."""
