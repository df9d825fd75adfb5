"""Rules tried on recordings in this process, without a service."""
