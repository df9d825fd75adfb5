"""`rule-detector cluster`, `move`, `drain` and `undrain`: the nodes and workers of a running service."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click
import msgspec

from api.cli.lookup import find_detector
from api.cli.messages import counted
from api.cli.options.service_options import service_and_output_options, service_options
from api.cli.printing.output import print_table
from api.schema.messages.cluster import BusyDetector, Cluster
from engine.runtime.contract.figures import (
    DetectorFigures,
    FrontEndFigures,
    NodeFigures,
    OtherSetting,
    WorkerFigures,
)
from rule_detector_client import Client, ServiceError, calls

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
    """Show nodes, front ends, and detector workers with their detectors.

    A worker that did not answer within a second is marked, and shown with its last known figures. Settings
    that are not in force are listed, too: services on one folder share the settings of the first one.
    """
    call = calls.show_cluster()
    if output == "json":
        click.echo(client.send(calls.raw(call)))
        return
    from rich.console import Console  # noqa: PLC0415 -- slow to import, and not needed by the other commands

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


_LOOK_S = 1.0
_DONE_AFTER_S = 2.0
"""How long a node must stay empty, because a worker that is being started there is not shown yet."""


@click.command(
    epilog="""\b
Examples:
  rule-detector move logins
  rule-detector move logins --to 10.0.0.7
"""
)
@click.argument("detector", metavar="ID|NAME")
@click.option("--to", metavar="NODE", help="The node's id or the beginning of it, its address or its host.")
@service_options
def move(*, client: Client, detector: str, to: str | None) -> None:
    """Move a detector to another node of the cluster, by default to the one with the most room.

    The detector is saved, then activated on that node. Requests wait meanwhile, and each is answered once.
    """
    found = find_detector(client, detector)
    moved = client.send(calls.move_detector(found.id, None if to is None else _node(client, to).id))
    (node,) = [one for one in _cluster(client).nodes if one.id == moved["node"]]
    click.echo(f"The detector `{found.name}` is active on {_name(node)}.")


@click.command(
    epilog="""\b
Examples:
  rule-detector drain 10.0.0.7
  rule-detector drain 10.0.0.7 --no-wait
"""
)
@click.argument("node", metavar="NODE")
@click.option("--wait/--no-wait", default=True, help="Wait until no detector is left there.  [default: wait]")
@service_options
def drain(*, client: Client, node: str, wait: bool) -> None:
    """Move all detectors off a node, so that it can be stopped.

    No more workers are started there, and the directory moves away too. Draining continues if the command is
    interrupted, and the command can be repeated. NODE is an id or its beginning, an address or a host.
    """
    found = _node(client, node)
    client.send(calls.drain_node(found.id))
    click.echo(f"{_name(found)} is drained.")
    printed, empty_since_s = "", None
    while wait:
        cluster = _cluster(client)
        left = Counter({"workers": 0, "detectors": 0})
        for worker in cluster.workers:
            if worker.node == found.id:
                left.update(workers=1, detectors=len(worker.detectors))
        now_s = time.monotonic()
        empty_since_s = None if left.total() else empty_since_s or now_s
        if empty_since_s is not None and now_s >= empty_since_s + _DONE_AFTER_S:
            click.echo("No detector is left there.")
            return
        say = f"left there: {counted(left['detectors'], 'detector')}, {counted(left['workers'], 'worker')}"
        if cluster.no_room:
            say += f"; {cluster.no_room}"
        if left.total() and say != printed:
            click.echo(say)
            printed = say
        time.sleep(_LOOK_S)


@click.command()
@click.argument("node", metavar="NODE")
@service_options
def undrain(*, client: Client, node: str) -> None:
    """Let a drained node take detectors again."""
    found = _node(client, node)
    after = msgspec.convert(client.send(calls.undrain_node(found.id)), NodeFigures)
    if after.draining:
        raise ServiceError(f"{_name(found)} is drained by Ray, which alone can end that")
    click.echo(f"{_name(found)} takes detectors again.")


def _cluster(client: Client) -> Cluster:
    shown: dict[str, Any] = client.send(calls.show_cluster())
    return msgspec.convert(shown, Cluster)


def _node(client: Client, wanted: str) -> NodeFigures:
    """Return the living node with that id, address or host. Raises ServiceError."""
    nodes = [node for node in _cluster(client).nodes if node.alive]
    found = [node for node in nodes if node.id.startswith(wanted) or wanted in (node.address, node.host)]
    match found:
        case [node]:
            return node
        case []:
            there = ", ".join(_name(node) for node in nodes) or "none is known"
            raise ServiceError(f"no living node is `{wanted}`; the living ones: {there}")
        case several:
            ids = ", ".join(node.id for node in several)
            raise ServiceError(f"{len(several)} nodes are `{wanted}`; give the id of one: {ids}")


def _name(node: NodeFigures) -> str:
    return f"{node.host} ({node.address}, {node.id[:12]})"
