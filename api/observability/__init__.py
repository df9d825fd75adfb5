"""What operators see of the service: its log and its metrics."""
