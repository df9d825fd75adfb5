"""The metrics of deliveries, in the text format of Prometheus."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, start_http_server

_PREFIX: Final = "rule_detector_deliver_"


class Figures:
    """Counts what is delivered, by the id of the detector."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.delivered = self._counter("delivered", "Firings that the target took.")
        self.failed = self._counter("failed_attempts", "Attempts to deliver a firing that failed.")
        self.dead = self._counter("dead_letters", "Firings that the target refused for good.")
        self.lost = self._counter("lost", "Firings that the service no longer kept when they were read.")
        self.breaks = self._counter("feed_breaks", "Connections to a feed that ended.")
        self.waiting = Gauge(
            f"{_PREFIX}waiting",
            "Whether a firing waits because the last attempt to deliver it failed.",
            ["detector"],
            registry=self.registry,
        )
        self.place = Gauge(
            f"{_PREFIX}place", "Number of the last firing delivered.", ["detector"], registry=self.registry
        )

        self._all: tuple[Counter | Gauge, ...] = (
            *(self.delivered, self.failed, self.dead, self.lost, self.breaks, self.waiting, self.place),
        )

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(f"{_PREFIX}{name}", meaning, ["detector"], registry=self.registry)

    def serve(self, host: str, port: int) -> int:
        """Serve the metrics from a thread, and return the port. Raises OSError."""
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
        return server.server_port

    def follow(self, detector_id: str, place: int) -> None:
        """Show the figures of a detector, which begins after a place."""
        for metric in self._all:
            metric.labels(detector_id)
        self.place.labels(detector_id).set(place)

    def forget(self, detector_id: str) -> None:
        """Drop the figures of a detector that was deleted."""
        for metric in self._all:
            metric.remove(detector_id)
