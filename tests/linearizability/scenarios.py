"""What happens to a cluster under load: each scenario returns the longest unavailability of a detector."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Final

from tests.linearizability.cluster import Node, send
from tests.linearizability.namespaces import Namespace
from tests.linearizability.trial import QUIET_S, Trial


def kill_worker(trial: Trial) -> float:
    """Kill the process that hosts a detector."""
    began_s = time.monotonic()
    send(trial.busy_worker(), signal.SIGKILL)
    return trial.recovered(began_s)


def stop_worker(trial: Trial) -> float:
    """Stop the process that hosts a detector until another one hosts it; the first is then fenced."""
    pid, began_s = trial.busy_worker(), time.monotonic()
    send(pid, signal.SIGSTOP)
    try:
        away_s = trial.recovered(began_s + 0.5)
    finally:
        send(pid, signal.SIGCONT)
    time.sleep(QUIET_S)
    return away_s


def kill_directory(trial: Trial) -> float:
    """Kill the directory, and a worker whose detector only a successor can place."""
    began_s = time.monotonic()
    send(trial.cluster.directory(), signal.SIGKILL)
    send(trial.busy_worker(), signal.SIGKILL)
    return trial.recovered(began_s)


def stop_directory(trial: Trial) -> float:
    """Stop the directory and kill a worker, until a successor has placed its detector."""
    began_s, pid = time.monotonic(), trial.cluster.directory()
    send(pid, signal.SIGSTOP)
    try:
        send(trial.busy_worker(), signal.SIGKILL)
        away_s = trial.recovered(began_s)
    finally:
        send(pid, signal.SIGCONT)
    time.sleep(QUIET_S)
    return away_s


def restart_front_ends(trial: Trial) -> float:
    """Restart one front end after another; clients first stop using it."""
    began_s = time.monotonic()
    for node in [node for node in trial.cluster.nodes if node.front is not None]:
        trial.load.fronts = {
            name: address for name, address in trial.cluster.fronts.items() if name != str(node.number)
        }
        trial.cluster.leave(node)
        trial.cluster.serve(node)
        trial.fronts_changed()
    return trial.recovered(began_s)


def kill_front_end(trial: Trial) -> float:
    """Kill a front end with requests under way, and start another."""
    node, began_s = trial.cluster.nodes[-1], time.monotonic()
    trial.cluster.leave(node, signal.SIGKILL)
    trial.fronts_changed()
    away_s = trial.recovered(began_s)
    trial.cluster.serve(node)
    trial.fronts_changed()
    return away_s


def kill_head(trial: Trial) -> float:
    """Kill all processes of the head, which has no detectors, and start it again at the same address."""
    return _without_head(trial, lambda head: head)


def move_head(trial: Trial) -> float:
    """Lose the head silently, and start it again at another address, to which its name then leads."""

    def moved(head: Namespace) -> Namespace:
        head.heal()
        return head.readdressed()

    head = trial.cluster.nodes[0].namespace
    assert head is not None
    # A lost machine closes no connections.
    head.cut_off()
    return _without_head(trial, moved)


def _without_head(trial: Trial, place: Callable[[Namespace], Namespace]) -> float:
    head, began_s = trial.cluster.nodes[0], time.monotonic()
    head.signal(signal.SIGKILL)
    time.sleep(HEAD_AWAY_S)
    assert head.namespace is not None
    head.namespace = place(head.namespace)
    trial.cluster.name_head()
    trial.cluster.join(head)
    trial.recovered(time.monotonic())
    # Processes can be started again.
    send(trial.busy_worker(), signal.SIGKILL)
    trial.recovered(time.monotonic())
    for subject in trial.load.subjects:
        trial.move(subject)
    return trial.recovered(began_s)


def move_detectors(trial: Trial) -> float:
    """Move each detector to another node, and to another one from there."""
    began_s = time.monotonic()
    for subject in trial.load.subjects:
        for _ in range(2):
            trial.move(subject)
    return trial.recovered(began_s)


def kill_while_moving(trial: Trial) -> float:
    """Kill the worker that has a detector, at a random moment of the detector's move."""
    began_s = time.monotonic()
    for subject in trial.load.subjects:
        moving = threading.Thread(target=trial.move, args=(subject,))
        moving.start()
        time.sleep(trial.chance.uniform(0.05, 0.4))
        send(trial.cluster.worker(subject.id), signal.SIGKILL)
        moving.join()
    return trial.recovered(began_s)


def drain_nodes(trial: Trial) -> float:
    """Drain one node after another, including the directory's."""
    began_s = time.monotonic()
    for node in trial.nodes():
        trial.drain(node)
        trial.until_empty(node)
        trial.undrain(node)
    return trial.recovered(began_s)


def kill_drained_node(trial: Trial) -> float:
    """Kill all processes of a node while its detectors leave it."""
    node, began_s = trial.worker_node(), time.monotonic()
    there = [one for one in trial.load.subjects if trial.cluster.worker(one.id) in node.pids()]
    trial.drain(trial.place(there[0]))
    time.sleep(trial.chance.uniform(0, 0.4))
    node.signal(signal.SIGKILL)
    away_s = _without(trial, node, began_s)
    _replace(trial, node)
    return away_s


def cut_off_drained_node(trial: Trial) -> float:
    """Cut a node off while its detectors leave it, until they answer elsewhere."""
    node = trial.worker_node()
    there = [one for one in trial.load.subjects if trial.cluster.worker(one.id) in node.pids()]
    drained = trial.place(there[0])
    trial.drain(drained)
    time.sleep(trial.chance.uniform(0, 0.4))
    away_s = _cut_off(trial, 15.0, node)
    if drained in trial.nodes(draining=True):
        trial.undrain(drained)
    return away_s


def kill_node(trial: Trial) -> float:
    """Kill all processes of a node with detectors; the clients know another front end."""
    node, began_s = trial.worker_node(), time.monotonic()
    node.signal(signal.SIGKILL)
    away_s = _without(trial, node, began_s)
    _replace(trial, node)
    return away_s


def stop_node(trial: Trial) -> float:
    """Stop all processes of a node with detectors, until they answer elsewhere; then continue them."""
    node, began_s = trial.worker_node(), time.monotonic()
    node.signal(signal.SIGSTOP)
    try:
        away_s = _without(trial, node, began_s)
    finally:
        node.signal(signal.SIGCONT)
    time.sleep(QUIET_S)
    trial.fronts_changed()
    _replace_if_dead(trial, node)
    return away_s


def stop_raylet(trial: Trial) -> float:
    """Stop only Ray's own process on a node until Ray declares the node dead; the others there continue."""
    node, began_s = trial.worker_node(), time.monotonic()
    raylet = trial.cluster.raylet(node)
    assert raylet is not None
    send(raylet, signal.SIGSTOP)
    try:
        time.sleep(25.0)
    finally:
        send(raylet, signal.SIGCONT)
    away_s = trial.recovered(began_s)
    _replace_if_dead(trial, node)
    return away_s


def cut_off_briefly(trial: Trial) -> float:
    """Cut a node off from the others, and heal it before anybody declares it dead."""
    return _cut_off(trial, 2.0)


def cut_off(trial: Trial) -> float:
    """Cut a node off until its detectors answer elsewhere, while its clients still reach its front end."""
    return _cut_off(trial, 25.0)


def cut_off_directory(trial: Trial) -> float:
    """Cut off the node with the directory."""
    node = trial.cluster.node_of(trial.cluster.directory())
    if node.number == 0:
        # Without the head nothing can be started anywhere, which is not the subject here.
        send(trial.cluster.directory(), signal.SIGKILL)
        time.sleep(QUIET_S)
        node = trial.cluster.node_of(trial.cluster.directory())
    return _cut_off(trial, 25.0, None if node.number == 0 else node)


def cut_off_head(trial: Trial) -> float:
    """Cut off the head for so long that an impatient one would declare all nodes dead. None of them ends."""
    head, began_s = trial.cluster.nodes[0], time.monotonic()
    raylets = [trial.cluster.raylet(node) for node in trial.cluster.nodes]
    assert head.namespace is not None
    head.namespace.cut_off()
    try:
        time.sleep(HEAD_CUT_OFF_S)
    finally:
        head.namespace.heal()
    away_s = trial.recovered(began_s)
    # A node that was declared dead learns it only now.
    time.sleep(HEARD_S)
    assert [trial.cluster.raylet(node) for node in trial.cluster.nodes] == raylets
    for node in trial.cluster.nodes:
        assert node.front is None or node.front.process.poll() is None
    return max(away_s, trial.recovered(time.monotonic()))


def _cut_off(trial: Trial, for_s: float, node: Node | None = None) -> float:
    node, began_s = node or trial.worker_node(), time.monotonic()
    assert node.namespace is not None
    node.namespace.cut_off()
    try:
        time.sleep(for_s)
    finally:
        node.namespace.heal()
    # Its own front end answered for a while after the cut, from workers of the same node.
    away_s = trial.recovered(began_s, beside=str(node.number))
    _replace_if_dead(trial, node)
    return away_s


def _without(trial: Trial, node: Node, began_s: float) -> float:
    """Wait until all detectors answer the clients that do not use a node."""
    trial.load.fronts = {
        name: address for name, address in trial.cluster.fronts.items() if name != str(node.number)
    }
    return trial.recovered(began_s + 0.2)


def _replace(trial: Trial, node: Node) -> None:
    """Start a node again, with its front end if it had one."""
    had_front = node.front is not None
    if had_front:
        trial.cluster.leave(node, signal.SIGKILL)
    if node.namespace is not None:
        node.signal(signal.SIGKILL)
        trial.cluster.join(node)
        if had_front:
            trial.cluster.serve(node)
    trial.fronts_changed()


def _replace_if_dead(trial: Trial, node: Node) -> None:
    """Start a node again if Ray gave it up, which neither its raylet nor its front end survives."""
    time.sleep(2 * QUIET_S)
    front_ended = node.front is not None and node.front.process.poll() is not None
    if front_ended or trial.cluster.raylet(node) is None:
        _replace(trial, node)


HEAD_CUT_OFF_S: Final = 20.0
HEARD_S: Final = 10.0
HEAD_AWAY_S: Final = 40.0
"""Longer than front ends work without news about tokens."""

Scenario = Callable[[Trial], float]
EVERYWHERE: Final[tuple[Scenario, ...]] = (
    kill_worker,
    kill_directory,
    kill_front_end,
    restart_front_ends,
    stop_worker,
    stop_directory,
    move_detectors,
    kill_while_moving,
    drain_nodes,
)
"""The scenarios that a cluster on the loopback interface can play many times."""
OF_NAMESPACES: Final[tuple[Scenario, ...]] = (
    cut_off_briefly,
    kill_node,
    stop_node,
    stop_raylet,
    cut_off,
    cut_off_directory,
    kill_drained_node,
    cut_off_drained_node,
)
PATIENT: Final[tuple[Scenario, ...]] = (cut_off_head,)
"""The scenarios for which the head must be patient with nodes that it cannot reach."""
WITH_REDIS: Final[tuple[Scenario, ...]] = (kill_head, move_head)
"""The scenarios for which Ray's control store must keep its data."""
SHORT: Final[tuple[Scenario, ...]] = (kill_directory, move_detectors, drain_nodes)
"""What `.ci/run` plays. It kills workers in tests/crash/running_service."""
SHORT_OF_NAMESPACES: Final[tuple[Scenario, ...]] = (cut_off_briefly, stop_node, kill_node)
