"""A Ray cluster on this machine with front ends of the service: nodes can be stopped, killed and cut off.

The nodes are network namespaces, or raylets on the loopback interface, among which there are no partitions.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from engine.runtime.cluster.node_checks import VARIABLE, WANTED
from tests.linearizability.journal import KEEP_ALL
from tests.linearizability.namespaces import Namespace, namespaces
from tests.process_table import command as command_of
from tests.process_table import family, holders
from tests.ray_cluster import ray_cluster
from tests.service_process import END_WITHIN_S, PROGRAM, Process, environment

PORT: Final = 8080
RAY: Final = str(Path(sys.executable).with_name("ray"))
REDIS: Final = "redis-server"
KEEPALIVE: Final = {
    "RAY_grpc_client_keepalive_time_ms": "10000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
}
"""With these, Ray's processes soon notice that a connection is dead."""
HEAD: Final = "rdn-head"
"""The head's name, if nodes know it by name."""
DEADLINE_S: Final = 8
NODE_WITHIN_S: Final = 60
JOINS_MAX: Final = 3
"""On a busy machine a raylet may take longer than the 30 s after which Ray gives up."""
_OPTIONS: Final = (
    *("--deadline-s", str(DEADLINE_S), "--snapshot-interval-s", "2", "--spares", "1"),
    # So that the whole journal is there in the end, with the order of all requests.
    *("--snapshots-kept", str(KEEP_ALL)),
)


@dataclass
class Node:
    """A node, and the front end on it if there is one."""

    number: int
    pids: Callable[[], set[int]]
    namespace: Namespace | None = None
    cpus: int = 4
    front: Process | None = None
    address: tuple[str, int] | None = None
    """Where clients reach its front end."""
    stopped: set[int] = field(default_factory=set)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        for pid in self.pids():
            send(pid, number)


@dataclass
class Cluster:
    """Nodes, the first of which is the head, and a data folder that they share."""

    data: Path
    nodes: list[Node]
    token: str
    head: str
    """The address of Ray's control store."""
    environment: dict[str, str]
    ends: ExitStack
    hosts: Path | None = None
    """The host names, if the nodes know the head by its name."""

    @property
    def fronts(self) -> dict[str, tuple[str, int]]:
        """The addresses of the front ends, by the numbers of their nodes."""
        return {str(node.number): node.address for node in self.nodes if node.address is not None}

    def serve(self, node: Node) -> None:
        """Start a front end on a node, and wait until it listens."""
        host = "127.0.0.1" if node.namespace is None else node.namespace.client_address
        port = "0" if node.namespace is None else str(PORT)
        arguments = ["serve", "--host", host, "--port", port, "--data", str(self.data)]
        command = [PROGRAM, *arguments, "--ray-address", self.head, *_OPTIONS]
        front = self._run(node, f"front{node.number}", command, hidden=self._raylets_but(node))
        address = front.wait_for(r"Listening on http://([\d.]+):(\d+);")
        node.front, node.address = front, (address[1], int(address[2]))

    def leave(self, node: Node, number: signal.Signals = signal.SIGTERM) -> None:
        """End the front end of a node."""
        assert node.front is not None
        front, node.front, node.address = node.front, None, None
        front.send(number)
        front.process.wait(END_WITHIN_S)

    def join(self, node: Node) -> None:
        """Start a raylet in the namespace of a node; try again if that takes longer than Ray waits."""
        for _ in range(JOINS_MAX - 1):
            try:
                return self._join(node)
            except AssertionError:
                node.signal(signal.SIGKILL)
        return self._join(node)

    def _join(self, node: Node) -> None:
        assert node.namespace is not None
        is_head = node.number == 0
        own = node.namespace.address
        where = ["--head", "--port", self.head.split(":")[1]] if is_head else ["--address", self.head]
        if is_head:
            # Ray takes the address in it as in use. A machine that replaces the head has no such file.
            Path(self.environment["RAY_TMPDIR"], "ray_current_cluster").unlink(missing_ok=True)
            where += ["--include-dashboard", "false", "--temp-dir", self.environment["RAY_TMPDIR"]]
        small = [
            "--num-cpus",
            str(node.cpus),
            "--object-store-memory",
            "80000000",
            "--include-log-monitor",
            "false",
        ]
        command = [RAY, "start", "--block", "--node-ip-address", own, *where, *small, "--disable-usage-stats"]
        self._run(node, f"ray{node.number}", command).wait_for("Ray runtime started", NODE_WITHIN_S)

    def name_head(self) -> None:
        """Let the head's name mean the present address of its node."""
        namespace = self.nodes[0].namespace
        assert namespace is not None
        assert self.hosts is not None
        self.hosts.write_text(f"127.0.0.1 localhost\n{namespace.address} {HEAD}\n", "ascii")

    def _raylets_but(self, node: Node) -> set[int]:
        """The raylets of other namespaces. A driver searches all processes that it sees for one."""
        others = [one.pids() for one in self.nodes if one is not node] if node.namespace else []
        return set(filter(_is_raylet, set().union(*others)))

    def _run(self, node: Node, name: str, command: list[str], hidden: Iterable[int] = ()) -> Process:
        if node.namespace is not None:
            empty = self.data.parent / "empty"
            empty.mkdir(exist_ok=True)
            command = node.namespace.command(*command, hosts=self.hosts, hidden=hidden, empty=empty)
        output = self.data.parent / f"{name}.{time.monotonic_ns()}.log"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )
        self.ends.callback(_end, process)
        return Process(process, output)

    def detector(self, detector_id: str) -> Path:
        """The folder of a detector."""
        return self.data / "detectors" / detector_id

    # -- who is who ---------------------------------------------------------------------------------------

    def directory(self) -> int:
        """The process that holds the folder's lock."""
        return _the_one(lambda: holders(lambda path: path == self.data / "lock"))

    def worker(self, detector_id: str) -> int:
        """The process in which a detector is active: its journal is open there."""
        folder = self.detector(detector_id)
        return _the_one(
            lambda: holders(lambda path: path.parent == folder and path.name.startswith("journal-"))
        )

    def raylet(self, node: Node) -> int | None:
        """Ray's own process on a node; None if it ended."""
        return next(filter(_is_raylet, node.pids()), None)

    def node_of(self, pid: int) -> Node:
        """The node on which a process runs."""
        return next(node for node in self.nodes if pid in node.pids())


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, if it still exists."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_raylet(pid: int) -> bool:
    return command_of(pid).split(" ")[0].endswith("/raylet")


def _the_one(find: Callable[[], set[int]]) -> int:
    """Wait until there is one."""
    give_up_s = time.monotonic() + 30
    while not (found := find()):
        assert time.monotonic() < give_up_s, "nobody has it"
        time.sleep(0.05)
    return min(found)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all processes that it started."""
    below = family(process.pid)
    send(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    for pid in below | family(process.pid):
        send(pid, signal.SIGKILL)
    # Waits for it, and closes its pipes.
    process.communicate()


@contextmanager
def cluster(
    folder: Path, count: int, *, partitions: bool, redis: bool = False, patient: bool = False
) -> Iterator[Cluster]:
    """Yield a cluster of this many nodes, with front ends on the last two of them.

    If it is `patient`, the head waits for nodes that it cannot reach, as the page for operators says.
    With `redis`, which needs partitions, Ray's control store keeps what it knows there, and the head takes
    no workers and is known by a name.
    """
    token = "rd_" + secrets.token_urlsafe(32)
    with ExitStack() as ends:
        # A path of a Unix socket has no more than 107 characters.
        temporary = ends.enter_context(tempfile.TemporaryDirectory(prefix="rdn", dir="/tmp"))
        variables = environment(
            RULE_DETECTOR_BOOTSTRAP_TOKEN=token,
            RAY_AUTH_MODE="token",
            RAY_AUTH_TOKEN=secrets.token_hex(32),
            RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="1",
            RAY_worker_niceness="0",
            RAY_USAGE_STATS_ENABLED="0",
            RAY_TMPDIR=temporary,
        )
        if patient:
            # With keepalives, an impatient head takes nodes for dead within 20 s; without, within 65 s.
            variables |= {VARIABLE: str(WANTED), **KEEPALIVE}
        if partitions:
            spaces = ends.enter_context(namespaces(count))
            nodes = [Node(space.number, space.pids, space) for space in spaces]
            head, hosts = spaces[0].address, None
            if redis:
                nodes[0].cpus, head, hosts = 0, HEAD, folder / "hosts"
                variables |= {
                    "RAY_REDIS_ADDRESS": _redis(folder, spaces[0], ends),
                    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
                    **KEEPALIVE,
                }
            made = Cluster(folder / "data", nodes, token, f"{head}:6379", variables, ends, hosts)
            if hosts is not None:
                made.name_head()
            for node in nodes:
                made.join(node)
        else:
            made = _on_loopback(folder / "data", count, token, variables, ends)
        for node in made.nodes[-2:]:
            made.serve(node)
        yield made


def _redis(folder: Path, beside: Namespace, ends: ExitStack) -> str:
    """Start Redis outside of all nodes; return the address at which they reach it."""
    host = beside.address.rsplit(".", 1)[0] + ".1"
    options = ["--bind", host, "--port", "6390", "--protected-mode", "no", "--save", "", "--dir", str(folder)]
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen([REDIS, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    ends.callback(_end, process)
    Process(process, folder / "redis.log").wait_for("Ready to accept connections")
    return f"{host}:6390"


def _on_loopback(data: Path, count: int, token: str, variables: dict[str, str], ends: ExitStack) -> Cluster:
    started = ends.enter_context(ray_cluster(data.parent, count, cpus=4, **variables))
    nodes = [Node(number, partial(family, pid)) for number, pid in enumerate(started.raylets.values())]
    return Cluster(data, nodes, token, started.address, variables, ends)
