"""What the processes of the service inherit."""

from engine.runtime.process.processes import keep_needed, of_tracing


def test_only_variables_that_something_needs_are_inherited() -> None:
    kept = {
        "PATH": "/bin",
        "HOME": "/root",
        "LANG": "C",
        "LC_TIME": "C",
        "TZ": "UTC",
        "TMPDIR": "/t",
        "PYTHONPATH": "p",
        "LD_LIBRARY_PATH": "l",
        "RAY_TLS_CA_CERT": "c",
        "RAY_AUTH_MODE": "token",
    }
    secret = {
        "AWS_SECRET_ACCESS_KEY": "s",
        "HTTPS_PROXY": "http://u:p@h",
        "http_proxy": "h",
        "PGPASSWORD": "s",
        "RULE_DETECTOR_BOOTSTRAP_TOKEN": "s",
        "RULE_DETECTOR_TOKEN": "s",
        "PYTHON_API_KEY": "s",
        "RAY_REDIS_PASSWORD": "s",
        "LANGSMITH_API_KEY": "s",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=s",
        "path": "s",
    }
    environment = kept | secret
    assert of_tracing(environment) == {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=s"}
    keep_needed(environment)
    assert environment == kept
