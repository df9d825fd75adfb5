"""What the longer operations do, from the query or body of a request to the response."""
