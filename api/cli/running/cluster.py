"""`rule-detector cluster`: what runs where in a running service."""

from collections.abc import Sequence
from datetime import UTC, datetime

import click
import msgspec
from rich.console import Console

from api.cli.options.service_options import service_and_output_options
from api.cli.printing.tables import print_table
from api.client import Client, calls
from api.schema.messages.cluster import Cluster
from engine.runtime.contract.measurements.figures import DetectorFigures, NodeFigures, WorkerFigures

_NODES = ("node", "address", "id", "cpus", "free", "detectors")
_FRONT_ENDS = ("front end", "pid", "memory", "waiting", "oldest", "loop lag", "last word", "started at")
_WORKERS = (
    "worker",
    "node",
    "pid",
    "memory",
    "detector",
    "waiting",
    "oldest",
    "keys",
    "state",
    "epoch",
    "active since",
)
_SETTINGS = ("service", "pid", "setting", "given", "in force")


@click.command(
    epilog="""\b
Examples:
  rule-detector cluster
  rule-detector cluster -o json | jq '.workers[] | select(.answers | not)'
"""
)
@service_and_output_options
def cluster(*, client: Client, output: str) -> None:
    """Show what runs where: nodes, front ends, and detector workers with their detectors.

    A worker that did not answer within a second is marked, and shown as it last was. Settings that differ
    from those in force are listed, too: services on one folder share the settings of the first one.
    """
    call = calls.show_cluster()
    if output == "json":
        click.echo(client.send(calls.raw(call)))
        return
    for header, rows in _tables(msgspec.convert(client.send(call), Cluster)):
        print_table(header, rows, Console())


def _tables(shown: Cluster) -> list[tuple[Sequence[str], Sequence[Sequence[str]]]]:
    """Return the header and the rows of each table."""
    detectors: dict[str, int] = {}
    for worker in shown.workers:
        detectors[worker.node] = detectors.get(worker.node, 0) + len(worker.detectors)
    nodes = [
        (
            _host(node),
            node.address,
            node.id[:12],
            f"{node.cpus:g}",
            f"{node.cpus_free:g}",
            str(detectors.get(node.id, 0)),
        )
        for node in shown.nodes
    ]
    front_ends = [
        (
            one.process.host,
            str(one.process.pid),
            _bytes(one.process.resident_bytes),
            str(one.waiting),
            _seconds(one.waiting_s),
            _seconds(one.loop_lag_s),
            _seconds(one.word_age_s),
            _time(one.process.started_ms),
        )
        for one in shown.front_ends
    ]
    workers = [
        _worker_row(worker, figures)
        for worker in shown.workers
        for figures in (*worker.detectors,) or (None,)
    ]
    tables: list[tuple[Sequence[str], Sequence[Sequence[str]]]]
    tables = [(_NODES, nodes), (_FRONT_ENDS, front_ends), (_WORKERS, workers)]
    if shown.other_settings:
        others = [
            (one.host, str(one.pid), one.setting, one.given, one.in_force) for one in shown.other_settings
        ]
        tables.append((_SETTINGS, others))
    return tables


def _worker_row(worker: WorkerFigures, figures: DetectorFigures | None) -> tuple[str, ...]:
    process = worker.process
    row = (
        worker.name if worker.answers else f"{worker.name} (silent)",
        worker.address,
        *(("", "") if process is None else (str(process.pid), _bytes(process.resident_bytes))),
    )
    if figures is None:
        return (*row, "(spare)", *[""] * 6)
    return (
        *row,
        figures.name or figures.id,
        str(figures.waiting),
        _seconds(figures.waiting_s),
        str(figures.keys),
        _bytes(figures.state_bytes),
        str(figures.epoch),
        _time(figures.since_ms),
    )


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
