"""What a monitor reads of this process: how many detectors are awake, and what happened to them."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from engine.runtime.fleet import Fleet
from engine.runtime.life import COUNTED

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST.encode()

PREFIX: Final = "rule_detector_"


class Metrics(Collector):
    """The fleet's counts in the text format of Prometheus."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Give all metrics as they are now."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Give the families of metrics, for the registry."""
        fleet = self._fleet
        yield GaugeMetricFamily(
            f"{PREFIX}detectors_awake", "Detectors that an actor hosts.", value=fleet.awake
        )
        readiness = fleet.readiness()
        yield GaugeMetricFamily(f"{PREFIX}ready", "Whether requests are served.", value=readiness.ready)
        yield GaugeMetricFamily(
            f"{PREFIX}troubles",
            "Detectors with something in their way, as /readyz tells.",
            value=len(fleet.troubles),
        )
        for name, meaning in COUNTED.items():
            yield CounterMetricFamily(PREFIX + name, meaning, value=fleet.counts[name])
