"""Logs as OpenTelemetry sends them (OTLP/HTTP): read from protobuf and JSON, and made events of."""
