"""What operators see of the service: the log and the metrics."""
