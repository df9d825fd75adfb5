"""The metrics in the text format of Prometheus, and the page that shows them."""

import platform
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from api.observability.cluster_metrics import cluster_families, cumulative
from api.observability.request_metrics import (
    BOUNDS_S,
    CAUSES,
    EXPIRED,
    EXPIRED_CAUSES,
    OUT_OF_MEMORY,
    REFUSALS,
    REQUESTS,
    SECONDS,
    SPAN_OUTCOMES,
    SPANS,
    THROTTLED,
    THROTTLED_CAUSES,
    WITHIN,
)
from api.schema.envelope import Response
from engine.runtime.concurrency.background import Kept
from engine.runtime.concurrency.threads import off_loop
from engine.runtime.contract.build import build_version
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.figures import ClusterFigures, Status
from engine.runtime.contract.measures import COUNTERS, FRONT_ENDS_LOST
from engine.runtime.front_end.backend import Backend

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST.encode()

PREFIX: Final = "rule_detector_"

BUILD: Final = {"version": build_version(), "ray": version("ray"), "python": platform.python_version()}


def metrics_text(status: Status, cluster: ClusterFigures) -> bytes:
    """Return all metrics of the service, and those of this process."""
    registry = CollectorRegistry()
    registry.register(_Families(status, cluster))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


@dataclass(frozen=True, eq=False)
class _Families(Collector):
    """The metric families of one status."""

    status: Status
    cluster: ClusterFigures

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        status = self.status
        build = GaugeMetricFamily(f"{PREFIX}build_info", "The build of the service.", labels=tuple(BUILD))
        build.add_metric(tuple(BUILD.values()), 1)
        yield build
        yield GaugeMetricFamily(f"{PREFIX}ready", "Whether requests are served.", value=not status.reasons)
        yield GaugeMetricFamily(
            f"{PREFIX}detectors_with_problems",
            "Detectors that cannot be activated or saved; /readyz names them.",
            value=status.detectors_with_problems,
        )
        for name, meaning in COUNTERS.items():
            yield CounterMetricFamily(PREFIX + name, meaning, value=status.counts[name])
        yield CounterMetricFamily(
            f"{PREFIX}front_ends_lost",
            "Front ends that ended unexpectedly and were replaced.",
            value=status.front_end_counts.get((FRONT_ENDS_LOST,), 0),
        )
        meaning = "Requests by the status of their response; 499 if the caller left before its end."
        yield self._all("requests", meaning, REQUESTS, "status")
        meaning = "Requests that were refused or failed, and streams ended by an error, by code."
        yield self._all("refusals", meaning, REFUSALS, "code")
        yield self._each(
            "throttled", "Requests that got 1401, by cause", THROTTLED, "cause", THROTTLED_CAUSES
        )
        meaning = "Requests that got 1501 because they were not sent to their detector by their deadline"
        yield self._each("expired", meaning, EXPIRED, "cause", EXPIRED_CAUSES)
        meaning = "Events because a front end had no memory left"
        yield self._each("front_end_out_of_memory", meaning, OUT_OF_MEMORY, "cause", CAUSES)
        yield self._each("spans", "Spans of requests, by outcome", SPANS, "outcome", SPAN_OUTCOMES)
        yield self._times()
        yield from cluster_families(self.cluster, PREFIX)

    def _all(self, name: str, meaning: str, counted: str, label: str) -> Metric:
        """Return a counter by operation and another label, with all values that occurred."""
        family = CounterMetricFamily(f"{PREFIX}{name}", meaning, labels=("operation", label))
        for values, count in sorted(self.status.front_end_counts.items()):
            if values[0] == counted:
                family.add_metric(values[1:], count)
        return family

    def _each(self, name: str, meaning: str, counted: str, label: str, values: Mapping[str, str]) -> Metric:
        """Return a counter with a label; the help text explains each of its values."""
        meaning = f"{meaning}: {'; '.join(map(': '.join, values.items()))}."
        family = CounterMetricFamily(f"{PREFIX}{name}", meaning, labels=(label,))
        for value in values:
            family.add_metric([value], self.status.front_end_counts.get((counted, value), 0))
        return family

    def _times(self) -> Metric:
        """Return the histogram of durations; Prometheus wants cumulative counts."""
        family = HistogramMetricFamily(
            f"{PREFIX}request_seconds",
            "Seconds from the arrival of a request's head to its answer.",
            labels=("operation",),
        )
        counts = self.status.front_end_counts
        for operation in sorted(name[1] for name in counts if name[0] == SECONDS):
            within = [counts.get((WITHIN, operation, str(number)), 0) for number in range(len(BOUNDS_S) + 1)]
            family.add_metric([operation], cumulative(within, BOUNDS_S), sum_value=counts[SECONDS, operation])
        return family


KEPT_S: Final = 1.0


async def look_at(backend: Backend) -> tuple[Status, ClusterFigures]:
    """Return the data of the page; without the scheduler, this process and the last known counts."""
    try:
        cluster = await backend.scheduler.ask("cluster", ClusterFigures)
    except DetectorUnavailable as error:
        return backend.without_directory(error)
    return await backend.status(), cluster


class MetricsPage:
    """Renders the page in a thread, because that takes long with many processes and operations.

    Anyone may request it, so all requests within a second get the same bytes.
    """

    def __init__(self, look: Callable[[], Awaitable[tuple[Status, ClusterFigures]]]) -> None:
        """`look` returns the data of the page. Its exceptions reach all waiting callers."""
        self._look = look
        self._kept = Kept(self._make, KEPT_S)

    async def answer(self) -> Response:
        """Return the page."""
        return await self._kept.get()

    @property
    def last(self) -> Response | None:
        """The last page, however old it is; None if there is none yet. Callable from any thread."""
        return self._kept.last

    async def _make(self) -> Response:
        status, cluster = await self._look()
        text = await off_loop(partial(metrics_text, status, cluster), "metrics")
        return Response(200, text, content_type=CONTENT_TYPE)
