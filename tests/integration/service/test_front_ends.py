"""Several front ends on one address, as users see them: revocation, death, replacement, shutdown."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from api.observability.metrics_page import KEPT_S
from api.server.connection import QUIET_S
from tests.service_process import DEADLINE_S, END_WITHIN_S, Served, program, served, until

FRONT_ENDS = 3


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("front_ends") / "data"
    with served(folder, "--front-ends", str(FRONT_ENDS), "--detectors-per-worker", "20") as running:
        yield running


@dataclass
class Connection:
    """A persistent connection, and the process at its other end."""

    client: http.client.HTTPConnection
    token: str
    pid: int = 0
    told: bool = False
    """Whether the last reply said that it was the last."""

    def request(self, method: str, path: str, document: object = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        body = None if document is None else json.dumps(document)
        self.client.request(method, path, body, headers)
        response = self.client.getresponse()
        self.told = response.getheader("connection") == "close"
        return response.status, json.loads(response.read())


OPEN: list[http.client.HTTPConnection] = []


@pytest.fixture(autouse=True)
def closed_in_the_end() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def connected(service: Served, token: str = "") -> Connection:
    host, port = service.url.removeprefix("http://").split(":")
    client = http.client.HTTPConnection(host, int(port), timeout=DEADLINE_S + 10)
    client.connect()
    # It would reconnect, perhaps to another front end, after its connection is closed.
    client.auto_open = 0
    OPEN.append(client)
    connection = Connection(client, token or service.token)
    connection.request("GET", "/healthz")
    connection.pid = peer_of(client.sock, {service.process.pid, *front_ends(service)})
    return connection


def peer_of(ours: socket.socket, pids: set[int]) -> int:
    """Return which of these processes has the other end of a connection."""
    local, remote = (f":{address[1]:04X}" for address in (ours.getsockname(), ours.getpeername()))
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(remote) and fields[2].endswith(local):
            wanted = f"socket:[{fields[9]}]"
    for pid in pids:
        with contextlib.suppress(OSError):
            if any(str(entry.readlink()) == wanted for entry in Path(f"/proc/{pid}/fd").iterdir()):
                return pid
    raise AssertionError("nobody has the other end")


def one_to_each(service: Served) -> dict[int, Connection]:
    """Return a connection to each front end; the operating system decides which connection goes to which."""
    found: dict[int, Connection] = {}
    for _ in range(200):
        connection = connected(service)
        if connection.pid in found:
            connection.client.close()
        found.setdefault(connection.pid, connection)
        if len(found) == FRONT_ENDS:
            return found
    raise AssertionError(f"all connections go to {sorted(found)}")


def front_ends(service: Served) -> set[int]:
    """Return the processes that serve."""
    children = Path(f"/proc/{service.process.pid}/task").glob("*/children")
    pids = {int(pid) for path in children for pid in path.read_text("ascii").split()}
    return {pid for pid in pids if b"api.process.front_end" in commandline(pid)}


def commandline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def with_rule(service: Served) -> str:
    detector: str = service.call("POST", "/api/detectors", {"name": "one"})["id"]
    rule = {"name": "seen", "condition": "once a == 1"}
    service.call("POST", f"/api/detectors/{detector}/rules", rule)
    return detector


def event(timestamp_ms: int = 0, **fields: Any) -> Any:
    return {"event": {"fields": fields, "timestamp_ms": timestamp_ms}}


@pytest.mark.ray
def test_what_is_done_through_one_is_seen_through_every_other(service):
    connections = one_to_each(service)
    first, second, third = connections.values()
    _, made = first.request("POST", "/api/detectors", {"name": "shared"})
    detector = f"/api/detectors/{made['result']['id']}"
    for connection in connections.values():
        status, listed = connection.request("GET", "/api/detectors")
        assert (status, made["result"]["id"] in str(listed)) == (200, True)
    assert second.request("POST", detector + "/rules", {"name": "seen", "condition": "once a == 1"})[0] == 200
    assert third.request("POST", detector + "/evaluate", event(1, a=1))[0] == 200
    for connection in connections.values():
        _, evaluated = connection.request("POST", detector + "/evaluate", event(2))
        assert [action["name"] for action in evaluated["result"]["actions"]] == ["seen"]
    assert third.request("DELETE", detector)[0] == 200
    for connection in connections.values():
        assert connection.request("POST", detector + "/evaluate", event(3))[0] == 404
        assert connection.request("GET", detector)[0] == 404


@dataclass
class Caller:
    """Evaluates one event after another on a connection, until told to stop or cut off.

    `told` tells that the service has said that a reply is the last on the connection; nothing is sent then.
    `late` tells that it was cut off after a silence in which a service that ends may close the connection.
    """

    connection: Connection
    detector: str
    answered: int = 0
    refused: list[Any] = field(default_factory=list)
    cut_off: bool = False
    late: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        path = f"/api/detectors/{self.detector}/evaluate"
        answered_s = time.monotonic()
        while not (self.stop.is_set() or self.connection.told):
            try:
                status, reply = self.connection.request("POST", path, event())
            except (OSError, http.client.HTTPException):
                self.cut_off = True
                self.late = time.monotonic() > answered_s + QUIET_S
                return
            answered_s = time.monotonic()
            if status == 200:
                self.answered += 1
            else:
                self.refused.append((status, reply["errors"]))

    def end(self) -> None:
        self.stop.set()
        self.thread.join(DEADLINE_S + 20)
        assert not self.thread.is_alive()


@contextlib.contextmanager
def calling(service: Served, detector: str, connections: int) -> Iterator[list[Caller]]:
    """Yield callers at work, each on a connection of its own."""
    callers = [Caller(connected(service), detector) for _ in range(connections)]
    for caller in callers:
        caller.start()
    try:
        until(lambda: all(caller.answered for caller in callers))
        yield callers
    finally:
        for caller in callers:
            caller.end()


@pytest.mark.ray
def test_one_that_is_killed_is_replaced_and_callers_of_the_others_do_not_notice(service):
    detector = with_rule(service)
    before = front_ends(service)
    lost_before = lost(service)
    with calling(service, detector, 12) as callers:
        victim = callers[0].connection.pid
        spared = [caller for caller in callers if caller.connection.pid != victim]
        os.kill(victim, signal.SIGKILL)
        # A new connection is accepted, though a replacement may have to start first.
        for _ in range(20):
            fresh = connected(service)
            assert fresh.request("POST", f"/api/detectors/{detector}/evaluate", event())[0] == 200
            assert fresh.pid != victim
            fresh.client.close()
        until(lambda: len(front_ends(service)) == FRONT_ENDS)
        done = [caller.answered for caller in spared]
        until(lambda: all(caller.answered > before for caller, before in zip(spared, done, strict=True)))
    assert front_ends(service) - before
    assert victim not in front_ends(service)
    assert not any(caller.cut_off or caller.refused for caller in spared)
    assert all(caller.cut_off for caller in callers if caller not in spared)
    assert lost(service) == lost_before + 1


def lost(service: Served) -> float:
    # The page of the last second would be returned again.
    time.sleep(KEPT_S)
    text = service.request("GET", "/metrics").text
    found = re.search(r"^rule_detector_front_ends_lost_total (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.mark.ray
def test_one_that_is_told_to_end_answers_what_it_took_and_is_replaced(service):
    detector = with_rule(service)
    counted = lost(service)
    with calling(service, detector, 12) as callers:
        ending = callers[0].connection.pid
        os.kill(ending, signal.SIGTERM)
        until(lambda: ending not in front_ends(service))
        until(lambda: len(front_ends(service)) == FRONT_ENDS)
    for caller in callers:
        assert not caller.refused
        assert caller.late or not caller.cut_off, "its last request was lost"
        assert caller.late or caller.connection.told == (caller.connection.pid == ending)
    assert lost(service) == counted


@pytest.mark.ray
@pytest.mark.parametrize(
    ("number", "to_all"),
    [
        (FRONT_ENDS, True),
        pytest.param(1, False, marks=pytest.mark.long),
        pytest.param(1, True, marks=pytest.mark.long),
        pytest.param(FRONT_ENDS, False, marks=pytest.mark.long),
    ],
)
def test_shutdown_answers_all_that_was_evaluated(tmp_path, number, to_all):
    """What was evaluated was answered, and vice versa: nothing accepted is lost."""
    data = tmp_path / "data"
    options = ("--front-ends", str(number), "--shutdown-wait-s", "1")
    with served(data, *options, start_new_session=True) as running:
        detector = with_rule(running)
        with calling(running, detector, 9) as callers:
            if to_all:
                # As service managers do: to every process of the group.
                os.killpg(running.process.pid, signal.SIGTERM)
            else:
                running.send(signal.SIGTERM)
            assert running.process.wait(END_WITHIN_S) == 0
        assert "Traceback" not in running.said()
    assert all(caller.connection.told or caller.late for caller in callers)
    assert not any((caller.cut_off and not caller.late) or caller.refused for caller in callers)
    report = program("inspect", str(data), "--json").stdout
    assert json.loads(report)["detectors"][0]["contents"]["events_seen"] == sum(
        caller.answered for caller in callers
    )


@pytest.mark.ray
def test_an_address_that_another_service_shares_among_its_front_ends_is_refused(service, tmp_path):
    port = service.url.rpartition(":")[2]
    run = program("serve", "--port", port, "--data", str(tmp_path / "data"), "--front-ends", "2")
    assert run.returncode == 1
    assert f"port {port}: address already in use" in run.stderr
