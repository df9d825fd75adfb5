"""What callers and operators see when a process of the Ray inside dies or stops answering."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ray._private import services

from tests import process_table
from tests.service_process import END_WITHIN_S, Served, environment, served, until

REFUSED = {(503, 1501), (503, 1503), (504, 1502)}
EVENT = {"event": {"fields": {}, "timestamp_ms": 1}}


def process_of(service: Served, name: str) -> int:
    """Return the process of Ray with the name in the path of its program, or of the script that it runs."""
    (found,) = [
        pid
        for pid in process_table.family(service.process.pid) - {service.process.pid}
        if any(name in Path(word).name for word in process_table.command(pid).split()[:3])
    ]
    return found


@dataclass
class Callers:
    """Callers that evaluate, activate and create without end, and the answers."""

    service: Served
    detector: str
    answers: list[tuple[int, int | None]] = field(default_factory=list)
    """Status, and the code of the first error."""
    without_envelope: list[tuple[int, bytes]] = field(default_factory=list)
    refused_connections: int = 0
    """How many found no listener before the process had ended."""
    stop: threading.Event = field(default_factory=threading.Event)

    def call(self, path: str, document: object) -> None:
        host, port = self.service.url.removeprefix("http://").split(":")
        client = http.client.HTTPConnection(host, int(port), timeout=60)
        headers = {"Authorization": f"Bearer {self.service.token}", "Content-Type": "application/json"}
        # A caller that connects after the listener closes, or just before, gets no answer.
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(client):
            try:
                client.connect()
            except ConnectionRefusedError:
                self.refused_connections += self.service.process.poll() is None
                raise
            client.request("POST", path, json.dumps(document), headers)
            response = client.getresponse()
            body = response.read()
            try:
                errors = json.loads(body)["errors"]
            except ValueError:
                self.without_envelope.append((response.status, body))
            else:
                self.answers.append((response.status, errors[0]["code"] if errors else None))

    def run(self, path: str, document: object) -> None:
        while not self.stop.is_set():
            self.call(path, document)
            time.sleep(0.05)


@contextlib.contextmanager
def calling(service: Served) -> Iterator[Callers]:
    detector = service.call("POST", "/api/detectors", {"name": "one"})["id"]
    callers = Callers(service, detector)
    evaluate = f"/api/detectors/{detector}/evaluate"
    threads = [
        threading.Thread(target=callers.run, args=arguments)
        for arguments in ((evaluate, EVENT), ("/api/detectors", {"name": "another"}))
    ]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(callers.answers) > 10)
        yield callers
    finally:
        callers.stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.ray
@pytest.mark.parametrize(
    "victim", [pytest.param("ray::DashboardAgent", marks=pytest.mark.long), "gcs_server"]
)
def test_with_an_essential_process_the_service_ends_in_order_and_tells_the_truth(tmp_path, victim):
    """Ray's raylet ends with each of its agents, and so do all actors; no setting prevents that."""
    with served(tmp_path / "data") as service, calling(service) as callers:
        os.kill(process_of(service, victim), signal.SIGKILL)
        assert service.process.wait(END_WITHIN_S) == 1
        callers.stop.set()
        said = service.said()
    assert callers.without_envelope == []
    assert set(callers.answers) <= {(200, None), *REFUSED}
    # Without the control store actors are still there, and have time for requests under way.
    assert victim == "gcs_server" or set(callers.answers) & REFUSED
    # Saving takes seconds, in which each of the two would be refused more than ten times.
    print(f"{callers.refused_connections} connections were refused")
    assert callers.refused_connections <= 10
    ended = "gcs_server" if victim == "gcs_server" else "raylet"
    assert f"ray's process `{ended}` ended by itself, and with it the service" in said
    assert "nothing that was answered is lost" in said
    assert "Traceback" not in said


@pytest.mark.ray
def test_a_ray_that_does_not_answer_is_told_and_does_not_keep_the_service_from_ending(tmp_path):
    with served(tmp_path / "data") as service, calling(service) as callers:
        # Nobody needs it.
        os.kill(process_of(service, "dashboard"), signal.SIGKILL)
        for name in ("raylet", "gcs_server"):
            pid = process_of(service, name)
            until(lambda: service.request("GET", "/readyz").status_code == 200)
            os.kill(pid, signal.SIGSTOP)
            until(lambda: service.request("GET", "/readyz").status_code == 503)
            (error,) = service.request("GET", "/readyz").json()["errors"]
            assert error["code"] == 1501
            answered = len(callers.answers)
            until(lambda answered=answered: len(callers.answers) > answered + 10)
            if name == "raylet":
                os.kill(pid, signal.SIGCONT)
                until(lambda: service.request("GET", "/readyz").status_code == 200)
        # Active detectors were served meanwhile.
        assert set(callers.answers) == {(200, None)}
        assert service.end() == 0
        callers.stop.set()
    assert callers.without_envelope == []
    assert set(callers.answers) <= {(200, None), *REFUSED}
    assert "Traceback" not in service.said()
    until(lambda: not process_table.command(pid))


START = """
import sys

from ray._private import services

services.RAYLET_EXECUTABLE = sys.argv[1]

import ray

from engine.runtime.cluster.session import ray_session

cluster = ray_session.start()
print(len(ray.nodes()), sorted(cluster.processes.essential))
print(ray_session.stop(cluster))
"""
FAILING_RAYLET = """#!/bin/sh
if echo started >> "$0.starts"; [ "$(wc -l < "$0.starts")" -le {failures} ]; then exit 1; fi
exec {raylet} "$@"
"""


@pytest.mark.ray
@pytest.mark.parametrize(("failures", "starts"), [(1, 2), pytest.param(2, 2, marks=pytest.mark.long)])
def test_a_ray_that_ends_while_it_starts_is_started_once_more(
    tmp_path: Path, failures: int, starts: int
) -> None:
    """Another program took a port that it had chosen, for example."""
    raylet = tmp_path / "raylet"
    raylet.write_text(FAILING_RAYLET.format(raylet=services.RAYLET_EXECUTABLE, failures=failures))
    raylet.chmod(0o755)
    command = [sys.executable, "-c", START, str(raylet)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment())
    if failures < starts:
        assert run.stdout.splitlines() == ["1 ['gcs_server', 'raylet']", "True"], run.stderr
        assert "ray is started a second time: raylet ended while it started" in run.stderr
    else:
        assert "ClusterError: ray cannot be used at `local`: raylet ended while it started" in run.stderr
    assert raylet.with_name("raylet.starts").read_text().split() == starts * ["started"]
