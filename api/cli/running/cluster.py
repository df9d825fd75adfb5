"""`rule-detector cluster`: what runs where in a running service."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

import click
import msgspec
from rich.console import Console

from api.cli.options.service_options import service_and_output_options
from api.cli.printing.tables import print_table
from api.schema.messages.cluster import BusyDetector, Cluster
from engine.runtime.contract.figures import (
    DetectorFigures,
    FrontEndFigures,
    NodeFigures,
    OtherSetting,
    WorkerFigures,
)
from rule_detector_client import Client, calls

T = TypeVar("T")


@click.command(
    epilog="""\b
Examples:
  rule-detector cluster
  rule-detector cluster --top
  rule-detector cluster --top events
  rule-detector cluster -o json | jq '.workers[] | select(.answers | not)'
"""
)
@click.option(
    "--top",
    type=click.Choice(["cpu", "events"]),
    is_flag=False,
    flag_value="cpu",
    help="Show only the busiest detectors: by processor time, or by events a second.",
)
@service_and_output_options
def cluster(*, client: Client, output: str, top: str | None) -> None:
    """Show what runs where: nodes, front ends, and detector workers with their detectors.

    A worker that did not answer within a second is marked, and its last known figures are shown. Settings
    that differ from those in force are listed, too: services on one folder share those of the first one.
    """
    call = calls.show_cluster()
    if output == "json":
        click.echo(client.send(calls.raw(call)))
        return
    if top is not None:
        busiest = msgspec.convert(client.send(call), Cluster).busiest
        busy = busiest.by_cpu if top == "cpu" else busiest.by_events
        print_table(list(_BUSIEST), [_row(_BUSIEST, one) for one in busy], Console())
        return
    for header, rows in _tables(msgspec.convert(client.send(call), Cluster)):
        print_table(list(header), rows, Console())


def _tables(shown: Cluster) -> Iterator[tuple[Iterable[str], list[list[str]]]]:
    """Yield the header and the rows of each table."""
    detectors: Counter[str] = Counter()
    for worker in shown.workers:
        detectors[worker.node] += len(worker.detectors)
    yield (*_NODES, "detectors"), [[*_row(_NODES, one), str(detectors[one.id])] for one in shown.nodes]
    yield _FRONT_ENDS, [_row(_FRONT_ENDS, one) for one in shown.front_ends]
    spare = ["(spare)", *[""] * (len(_DETECTORS) - 1)]
    yield (
        (*_WORKERS, *_DETECTORS),
        [
            _row(_WORKERS, worker) + row
            for worker in shown.workers
            for row in [_row(_DETECTORS, one) for one in worker.detectors] or [spare]
        ],
    )
    if shown.other_settings:
        yield _SETTINGS, [_row(_SETTINGS, one) for one in shown.other_settings]


def _row(columns: Mapping[str, Callable[[T], str]], it: T) -> list[str]:
    return [column(it) for column in columns.values()]


def _host(node: NodeFigures) -> str:
    if not node.alive:
        return f"{node.host} (dead)"
    return f"{node.host} (draining)" if node.draining else node.host


def _bytes(number: int) -> str:
    return f"{number / 1e6:.1f} MB"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1_000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if time_ms else ""


_NODES: Final[dict[str, Callable[[NodeFigures], str]]] = {
    "node": _host,
    "address": lambda it: it.address,
    "id": lambda it: it.id[:12],
    "cpus": lambda it: f"{it.cpus:g}",
    "free": lambda it: f"{it.cpus_free:g}",
}
_FRONT_ENDS: Final[dict[str, Callable[[FrontEndFigures], str]]] = {
    "front end": lambda it: it.process.host,
    "pid": lambda it: str(it.process.pid),
    "memory": lambda it: _bytes(it.process.resident_bytes),
    "waiting": lambda it: str(it.waiting),
    "oldest": lambda it: _seconds(it.waiting_s),
    "loop lag": lambda it: _seconds(it.loop_lag_s),
    "last answer": lambda it: _seconds(it.directory_answer_age_s),
    "started at": lambda it: _time(it.process.started_ms),
}
_WORKERS: Final[dict[str, Callable[[WorkerFigures], str]]] = {
    "worker": lambda it: it.name if it.answers else f"{it.name} (silent)",
    "node": lambda it: it.address,
    "pid": lambda it: str(it.process.pid) if it.process else "",
    "memory": lambda it: _bytes(it.process.resident_bytes) if it.process else "",
}
_DETECTORS: Final[dict[str, Callable[[DetectorFigures], str]]] = {
    "detector": lambda it: it.name or it.id,
    "waiting": lambda it: str(it.waiting),
    "oldest": lambda it: _seconds(it.waiting_s),
    "keys": lambda it: str(it.keys),
    "state": lambda it: _bytes(it.state_bytes),
    "epoch": lambda it: str(it.epoch),
    "active since": lambda it: _time(it.since_ms),
}
_BUSIEST: Final[dict[str, Callable[[BusyDetector], str]]] = {
    "detector": lambda it: it.name or it.id,
    "id": lambda it: it.id,
    "cpu": lambda it: f"{it.cpu:.1%}",
    "events/s": lambda it: f"{it.events_per_s:.1f}",
    "node": lambda it: it.address,
    "worker": lambda it: it.worker,
}
_SETTINGS: Final[dict[str, Callable[[OtherSetting], str]]] = {
    "service": lambda it: it.host,
    "pid": lambda it: str(it.pid),
    "setting": lambda it: it.setting,
    "given": lambda it: it.given,
    "in force": lambda it: it.in_force,
}
