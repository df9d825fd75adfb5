"""Rules tried on recordings, and tested, in this process without a service."""
