"""A service that runs out of file descriptors: idle connections are closed for callers with a token."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import service_process
from tests.service_process import Served, served

LIMIT = 512
IDLE_CONNECTIONS = 600
"""More than the service has room for, and fewer than this process may have."""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A service with a low limit on open files, which it cannot raise."""
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -n {LIMIT} && exec "{service_process.PROGRAM}" "$@"\n', "utf-8")
    limited.chmod(0o755)
    monkeypatch.setattr(service_process, "PROGRAM", str(limited))
    with served(tmp_path / "data") as made:
        yield made


def descriptors(service: Served) -> int:
    return sum(1 for _ in Path(f"/proc/{service.process.pid}/fd").iterdir())


def evaluate(service: Served, detector: str, timestamp_ms: int) -> None:
    body = {"event": {"fields": {}, "timestamp_ms": timestamp_ms}}
    assert service.call("POST", f"/api/detectors/{detector}/evaluate", body) == {"actions": []}


@pytest.mark.ray
def test_idle_connections_that_use_up_the_descriptors_keep_nobody_out(service: Served) -> None:
    assert f"may have {LIMIT} files open" in service.said()
    detector = service.call("POST", "/api/detectors", {"name": "d"})["id"]
    evaluate(service, detector, 0)
    before = descriptors(service)
    host, _, port = service.url.removeprefix("http://").rpartition(":")
    idle = []
    most = 0
    for number in range(IDLE_CONNECTIONS):
        idle.append(socket.create_connection((host, int(port)), timeout=10))
        if number % 20 == 0:
            evaluate(service, detector, number)
            most = max(most, descriptors(service))
    # New callers are served, and detectors activated, for which the service needs its own descriptors.
    for _ in range(3):
        another = service.call("POST", "/api/detectors", {"name": "another"})["id"]
        evaluate(service, another, 0)
    assert before + 200 < most < LIMIT
    # The oldest connections are closed first; in the end all are closed.
    assert idle[0].recv(1) == b""
    give_up_s = time.monotonic() + 60
    while descriptors(service) > before + 20 and time.monotonic() < give_up_s:
        evaluate(service, detector, IDLE_CONNECTIONS)
        time.sleep(0.2)
    assert descriptors(service) <= before + 20
    for each in idle:
        assert each.recv(1) == b""
        each.close()
    assert "Too many open files" not in service.said()
    assert "new ones evict others" in service.said()
    assert service.end() == 0
