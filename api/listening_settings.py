"""The settings of where the service listens, and how."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from api.setting import setting_field as _setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningSettings:
    """Addresses, ports and TLS."""

    host: str = _setting("127.0.0.1", "The address to listen on.")
    port: int = _setting(8080, "The port to listen on; 0 picks a free one.", least=0, most=65_535)
    tls_cert: Path | None = _setting(
        None,
        "The file with the certificate, and those that lead to its root, as PEM: requests use TLS then. "
        "It is read again when it changes. Needs --tls-key.",
    )
    tls_key: Path | None = _setting(None, "The file with the private key of the certificate, as PEM.")
    probe_port: int = _setting(
        0,
        "The port at which a thread of its own answers /healthz, /readyz and /metrics, however busy the "
        "service is; 0 for none.",
        least=0,
        most=65_535,
    )
    metrics_host: str | None = _setting(
        None,
        "The address to listen on at --probe-port, if not --host. The port of requests then has no /metrics.",
    )

    def defects(self) -> Iterator[str]:
        """Yield what does not go together."""
        if not self.host:
            yield "host: expected an address, got an empty string"
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "tls_cert, tls_key: expected both, or none"
        if self.metrics_host is not None and not self.probe_port:
            yield "metrics_host: expected a probe_port as well, at which it listens"
