"""`rule-detector move`, `drain` and `undrain`: where detectors of a running service are."""

import time
from collections import Counter
from typing import Any

import click
import msgspec

from api.cli.counted import counted
from api.cli.lookup import find_detector
from api.cli.options.service_options import service_options
from api.schema.messages.cluster import Cluster
from engine.runtime.contract.figures import NodeFigures
from rule_detector_client import Client, ServiceError, calls

_LOOK_S = 1.0
_DONE_AFTER_S = 2.0
"""How long a node must stay empty: a worker that is being started there is shown only once it has started."""


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

    No worker is started there any more, and the directory moves away too. The node goes on draining if the
    command is interrupted, and the command can be repeated. NODE is an id or its beginning, an address or a
    host.
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
    """Let a node that was drained take detectors again."""
    found = _node(client, node)
    after = msgspec.convert(client.send(calls.undrain_node(found.id)), NodeFigures)
    if after.draining:
        raise ServiceError(f"{_name(found)} is drained by Ray, which alone can end that")
    click.echo(f"{_name(found)} takes detectors again.")


def _cluster(client: Client) -> Cluster:
    shown: dict[str, Any] = client.send(calls.show_cluster())
    return msgspec.convert(shown, Cluster)


def _node(client: Client, wanted: str) -> NodeFigures:
    """Return the living node that is meant. Raises ServiceError."""
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
