"""Observability for operators: logs, metrics, probes and traces."""
