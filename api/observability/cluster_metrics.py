"""The metrics of what runs where: by node, never by detector, of which there may be thousands."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from engine.runtime.contract.measurements.figures import ClusterFigures, DetectorFigures, WorkerFigures
from engine.runtime.contract.measurements.measures import HISTOGRAMS

_NODE: Final = ("node",)

_OF_DETECTORS: Final[dict[str, tuple[str, Callable[[DetectorFigures], float]]]] = {
    "detectors_active": ("Active detectors.", lambda _: 1),
    "waiting_operations": ("Operations that workers have and did not answer yet.", lambda it: it.waiting),
    "keys": ("Live keys of active detectors.", lambda it: it.keys),
    "state_bytes": ("The estimated memory of these keys and their histories.", lambda it: it.state_bytes),
    "journal_bytes": ("Journals behind the newest snapshots.", lambda it: it.journal_bytes),
}
"""Gauges that are sums over the detectors of a node."""


class ClusterFamilies:
    """The metric families of what runs where. A node is named by its address."""

    def __init__(self, cluster: ClusterFigures, prefix: str) -> None:
        self._cluster = cluster
        self._prefix = prefix

    def families(self) -> Iterator[Metric]:
        """Yield the families."""
        cluster = self._cluster
        alive = sum(node.alive for node in cluster.nodes)
        yield self._gauge("nodes_alive", "Nodes of the cluster that are alive.", alive)
        yield self._gauge("nodes_dead", "Nodes of the cluster that died.", len(cluster.nodes) - alive)
        draining = sum(node.alive and node.draining != "" for node in cluster.nodes)
        yield self._gauge("nodes_draining", "Living nodes that are drained.", draining)
        yield self._gauge(
            "no_room",
            "1 while a detector worker is wanted for which no node has room.",
            float(cluster.no_room != ""),
        )
        yield self._gauge(
            "detectors_activating", "Detectors that are being activated.", len(cluster.activating)
        )
        yield from self._of_workers()
        yield from self._of_front_ends()
        yield from self._measured()
        if (folder := cluster.folder) is not None:
            yield self._gauge("data_free_bytes", "Free bytes where the data folder is.", folder.free_bytes)
            yield self._gauge("data_total_bytes", "The size of that file system.", folder.total_bytes)
            yield self._gauge(
                "data_free_inodes", "Files that can still be created there.", folder.free_inodes
            )

    def _of_workers(self) -> Iterator[Metric]:
        workers = self._cluster.workers
        yield self._by_node("workers", "Detector workers, used and spare.", workers, lambda _: 1)
        yield self._by_node(
            "workers_silent",
            "Workers that did not answer within a second.",
            workers,
            lambda it: not it.answers,
        )
        yield self._by_node(
            "worker_resident_bytes",
            "The resident memory of the workers.",
            workers,
            lambda it: 0 if it.process is None else it.process.resident_bytes,
        )
        for name, (meaning, of) in _OF_DETECTORS.items():
            yield self._by_node(name, meaning, workers, partial(_sum, of))
        yield self._by_node(
            "waiting_seconds",
            "How long the oldest operation of a worker has been there.",
            workers,
            lambda it: max((figures.waiting_s for figures in it.detectors), default=0.0),
            combine=max,
        )
        connections = GaugeMetricFamily(
            f"{self._prefix}worker_connections",
            "Connections to workers, by transport.",
            labels=("node", "transport"),
        )
        numbers: dict[tuple[str, str], int] = defaultdict(int)
        for worker in workers:
            for transport, number in worker.connections.items():
                numbers[worker.address, transport] += number
        for labels, number in sorted(numbers.items()):
            connections.add_metric(labels, number)
        yield connections

    def _of_front_ends(self) -> Iterator[Metric]:
        front_ends = self._cluster.front_ends
        yield self._gauge("front_ends", "Front ends.", len(front_ends))
        yield self._gauge(
            "front_end_waiting_requests",
            "Requests for detectors that are not answered yet.",
            sum(one.waiting for one in front_ends),
        )
        yield self._gauge(
            "front_end_waiting_seconds",
            "How long the oldest request that is not sent to a worker yet waits.",
            max((one.waiting_s for one in front_ends), default=0.0),
        )
        yield self._gauge(
            "directory_word_age_seconds",
            "The age of the last word about tokens and detectors, in the front end where it is oldest.",
            max((one.word_age_s for one in front_ends), default=0.0),
        )
        yield self._gauge(
            "event_loop_lag_seconds",
            "The longest delay of a front end's event loop in the last fifteen seconds.",
            max((one.loop_lag_s for one in front_ends), default=0.0),
        )

    def _measured(self) -> Iterator[Metric]:
        measured = sorted(self._cluster.measured.items())
        cpu = CounterMetricFamily(
            f"{self._prefix}worker_cpu_seconds", "CPU time of the workers.", labels=_NODE
        )
        evicted = CounterMetricFamily(
            f"{self._prefix}keys_evicted", "Live keys that were evicted to keep a limit.", labels=_NODE
        )
        for node, total in measured:
            cpu.add_metric([node], total.cpu_s)
            evicted.add_metric([node], total.keys_evicted)
        yield cpu
        yield evicted
        for name, (meaning, bounds) in HISTOGRAMS.items():
            family = HistogramMetricFamily(self._prefix + name, meaning, labels=_NODE)
            for node, total in measured:
                if (histogram := total.histograms.get(name)) is not None:
                    family.add_metric([node], cumulative(histogram.within, bounds), sum_value=histogram.total)
            yield family

    def _gauge(self, name: str, meaning: str, value: float) -> Metric:
        return GaugeMetricFamily(self._prefix + name, meaning, value=value)

    def _by_node(
        self,
        name: str,
        meaning: str,
        workers: list[WorkerFigures],
        of: Callable[[WorkerFigures], float],
        combine: Callable[[float, float], float] = lambda one, two: one + two,
    ) -> Metric:
        values: dict[str, float] = {}
        for worker in workers:
            node, value = worker.address, of(worker)
            values[node] = combine(values[node], value) if node in values else value
        family = GaugeMetricFamily(self._prefix + name, meaning, labels=_NODE)
        for node, value in sorted(values.items()):
            family.add_metric([node], value)
        return family


def _sum(of: Callable[[DetectorFigures], float], worker: WorkerFigures) -> float:
    return sum(map(of, worker.detectors))


def cumulative(within: Sequence[float], bounds: Sequence[float]) -> list[tuple[str, float]]:
    """Return the buckets as Prometheus wants them: each with the counts of those below it."""
    buckets, so_far = [], 0.0
    for bound, count in zip([*map(str, bounds), "+Inf"], within, strict=True):
        so_far += count
        buckets.append((bound, so_far))
    return buckets
