"""The metrics of the cluster: by node, never by detector, since there may be thousands of detectors."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from engine.evaluation.rule_book.shadows import KINDS, SHADOW
from engine.runtime.contract.figures import ClusterFigures, FolderFigures, MemoryFigures, WorkerFigures
from engine.runtime.contract.measures import HISTOGRAMS, Measured


def _of_detectors(figure: str) -> Callable[[WorkerFigures], float]:
    return lambda worker: sum(getattr(detector, figure) for detector in worker.detectors)


def _longest(figure: str) -> Callable[[ClusterFigures], float]:
    return lambda it: max((getattr(one, figure) for one in it.front_ends), default=0.0)


_DIRECTORY: Final[dict[str, tuple[str, Callable[[ClusterFigures], float]]]] = {
    "nodes_alive": ("Nodes of the cluster that are alive.", lambda it: sum(node.alive for node in it.nodes)),
    "nodes_dead": ("Nodes of the cluster that died.", lambda it: sum(not node.alive for node in it.nodes)),
    "nodes_draining": (
        "Living nodes that are drained.",
        lambda it: sum(node.alive and node.draining != "" for node in it.nodes),
    ),
    "no_room": (
        "1 while a detector worker is needed but no node has room for it.",
        lambda it: float(it.no_room != ""),
    ),
    "detectors_waiting_for_slots": (
        "Detectors that wait for one of the --max-resident slots because all are taken.",
        lambda it: it.waiting_for_slots,
    ),
    "overdue_seconds": (
        "How long the most overdue tick of a detector has been due.",
        lambda it: max([it.overdue_s, *(one.overdue_s for each in it.workers for one in each.detectors)]),
    ),
    "detectors_activating": ("Detectors that are being activated.", lambda it: len(it.activating)),
}
_FRONT_ENDS: Final[dict[str, tuple[str, Callable[[ClusterFigures], float]]]] = {
    "front_ends": ("Front ends.", lambda it: len(it.front_ends)),
    "front_end_waiting_requests": (
        "Requests for detectors that front ends have not answered yet.",
        lambda it: sum(one.waiting for one in it.front_ends),
    ),
    "front_end_waiting_seconds": (
        "How long the oldest request not yet sent to a worker has waited.",
        _longest("waiting_s"),
    ),
    "directory_answer_age_seconds": (
        "The age of the directory's last answer about tokens, in the front end with the oldest one.",
        _longest("directory_answer_age_s"),
    ),
    "certificate_stale": (
        "1 while the files of the certificate cannot be used, and an earlier one stays in use.",
        lambda it: float(any(one.certificate_stale for one in it.front_ends)),
    ),
}
_FOLDER: Final[dict[str, tuple[str, Callable[[FolderFigures], float]]]] = {
    "data_free_bytes": ("Free bytes on the file system of the data folder.", lambda it: it.free_bytes),
    "data_total_bytes": ("The size of the file system of the data folder.", lambda it: it.total_bytes),
    "data_free_inodes": (
        "Files that can still be created on the file system of the data folder.",
        lambda it: it.free_inodes,
    ),
}


_MEASURED: Final[dict[str, tuple[str, Callable[[Measured], float]]]] = {
    "worker_cpu_seconds": ("CPU time of the workers.", lambda it: it.cpu_s),
    "events": ("Events that detectors have evaluated.", lambda it: it.events),
    "actions": ("Actions that evaluated events have caused.", lambda it: it.actions),
    "ticks": ("Ticks that moved the clock of a detector.", lambda it: it.ticks),
    "firings_by_time": ("Firings of rules because time passed.", lambda it: it.firings_by_time),
    "firings": ("Firings added to the feeds of detectors.", lambda it: it.firings),
    "keys_evicted": ("Live keys that were evicted to keep a limit.", lambda it: it.keys_evicted),
    "shadow_firings": ("Firings of shadow rules.", lambda it: it.shadows.get(SHADOW, 0)),
}


class _OfWorkers(NamedTuple):
    """A gauge by node: the sum or the maximum of a figure over the node's workers."""

    meaning: str
    of: Callable[[WorkerFigures], float]
    combine: Callable[[list[float]], float] = sum


_WORKERS: Final = {
    "workers": _OfWorkers("Detector workers, used and spare.", lambda _: 1),
    "workers_silent": _OfWorkers("Workers that did not answer within a second.", lambda it: not it.answers),
    "worker_resident_bytes": _OfWorkers(
        "The resident memory of the workers.",
        lambda it: 0 if it.process is None else it.process.resident_bytes,
    ),
    "detectors_active": _OfWorkers("Active detectors.", lambda it: len(it.detectors)),
    "waiting_operations": _OfWorkers(
        "Operations that workers have received and not answered yet.", _of_detectors("waiting")
    ),
    "keys": _OfWorkers("Live keys of active detectors.", _of_detectors("keys")),
    "state_bytes": _OfWorkers(
        "The estimated memory of live keys and their histories.", _of_detectors("state_bytes")
    ),
    "relations_bytes": _OfWorkers(
        "The estimated memory of stored relations.", _of_detectors("relations_bytes")
    ),
    "journal_bytes": _OfWorkers(
        "The bytes of journals that the newest snapshots do not include.", _of_detectors("journal_bytes")
    ),
    "waiting_seconds": _OfWorkers(
        "How long the oldest unanswered operation of a worker has waited.",
        lambda it: max((figures.waiting_s for figures in it.detectors), default=0.0),
        max,
    ),
}


def cluster_families(cluster: ClusterFigures, prefix: str) -> Iterator[Metric]:
    """Yield the metric families of the cluster. A node is named by its address.

    If the directory does not answer, its gauges are absent, because a zero would be wrong.
    """
    for name, (meaning, of_cluster) in (
        (_DIRECTORY if cluster.directory_answers else {}) | _FRONT_ENDS
    ).items():
        yield GaugeMetricFamily(prefix + name, meaning, value=of_cluster(cluster))
    for name, gauge in _WORKERS.items():
        values: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for worker in cluster.workers:
            values[worker.address,].append(gauge.of(worker))
        combined = {node: gauge.combine(numbers) for node, numbers in values.items()}
        yield _labelled(GaugeMetricFamily(prefix + name, gauge.meaning, labels=["node"]), combined)
    meaning = "The memory that front ends hold for callers, by kind: bodies, requests and answers."
    held = GaugeMetricFamily(f"{prefix}front_end_held_bytes", meaning, labels=["kind"])
    yield _labelled(held, _held(cluster))
    meaning = "The longest delay of an event loop in the last fifteen seconds, by the kind of process."
    lag = GaugeMetricFamily(f"{prefix}event_loop_lag_seconds", meaning, labels=["process"])
    yield _labelled(lag, _lags(cluster))
    connections: dict[tuple[str, ...], float] = defaultdict(float)
    for worker in cluster.workers:
        for transport, number in worker.connections.items():
            connections[worker.address, transport] += number
    meaning = "Connections to workers, by transport."
    by_transport = GaugeMetricFamily(f"{prefix}worker_connections", meaning, labels=["node", "transport"])
    yield _labelled(by_transport, connections)
    yield from _measured(cluster, prefix)
    if cluster.folder is not None:
        for name, (meaning, of_folder) in _FOLDER.items():
            yield GaugeMetricFamily(prefix + name, meaning, value=of_folder(cluster.folder))


def _held(cluster: ClusterFigures) -> dict[tuple[str, ...], float]:
    return {
        (kind,): sum(getattr(one.memory_bytes, kind) for one in cluster.front_ends)
        for kind in MemoryFigures.__struct_fields__
    }


def _lags(cluster: ClusterFigures) -> dict[tuple[str, ...], float]:
    lags: dict[tuple[str, ...], float] = {("front_end",): _longest("loop_lag_s")(cluster)}
    if not cluster.directory_answers:
        return lags
    return lags | {
        ("directory",): cluster.scheduler_loop_lag_s,
        ("worker",): max((worker.loop_lag_s for worker in cluster.workers), default=0.0),
    }


def _measured(cluster: ClusterFigures, prefix: str) -> Iterator[Metric]:
    """Yield the measurements of all workers since the scheduler's start, ended ones included."""
    measured = cluster.measured
    for name, (meaning, of_node) in _MEASURED.items():
        counter = CounterMetricFamily(prefix + name, meaning, labels=["node"])
        yield _labelled(counter, {(node,): of_node(total) for node, total in measured.items()})
    meaning = "Refused evaluations, and refused events of batches and streams, by code."
    refused = CounterMetricFamily(f"{prefix}events_refused", meaning, labels=["node", "code"])
    by_code: dict[tuple[str, ...], float] = {
        (node, str(code)): times for node, total in measured.items() for code, times in total.refused.items()
    }
    yield _labelled(refused, by_code)
    meaning = "Events at which a rule or its draft fired, by which of them fired."
    compared = CounterMetricFamily(f"{prefix}compared_firings", meaning, labels=["node", "fired"])
    by_kind: dict[tuple[str, ...], float] = {
        (node, kind): total.shadows.get(kind, 0) for node, total in measured.items() for kind in KINDS
    }
    yield _labelled(compared, by_kind)
    for name, (meaning, bounds) in HISTOGRAMS.items():
        family = HistogramMetricFamily(prefix + name, meaning, labels=["node"])
        for node, total in sorted(measured.items()):
            if (histogram := total.histograms.get(name)) is not None:
                family.add_metric([node], cumulative(histogram.within, bounds), sum_value=histogram.total)
        yield family


def _labelled(
    family: GaugeMetricFamily | CounterMetricFamily, values: dict[tuple[str, ...], float]
) -> Metric:
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family


def cumulative(within: Sequence[float], bounds: Sequence[float]) -> list[tuple[str, float]]:
    """Return cumulative buckets, as Prometheus expects them."""
    return list(zip([*map(str, bounds), "+Inf"], accumulate(within), strict=True))
