"""Relations of a running service: uploaded through two front ends, and kept when it is killed."""

import json
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rule_detector_client import Client, calls
from tests.process_table import command, family
from tests.service_process import END_WITHIN_S, Served, served, until

pytestmark = pytest.mark.ray

TUPLES = 20_000


def fires(service: Served, detector: str, user: str, time_ms: int) -> bool:
    event = {"event": {"fields": {"user": user, "ip": "10.0.0.1"}, "timestamp_ms": time_ms}}
    return bool(service.call("POST", f"/api/detectors/{detector}/evaluate", event)["actions"])


def abandon_upload(service: Served, path: str, body: bytes) -> None:
    """Announce a body, send a part of it, and disconnect."""
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        head = f"PUT {path} HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer {service.token}\r\n"
        head += f"Content-Type: application/x-ndjson\r\nContent-Length: {2 * len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)


def kill(service: Served) -> None:
    """Kill the main process. No other process remains."""
    below = family(service.process.pid) - {service.process.pid}
    assert any("Agent" in command(pid) for pid in below), "they would stay for ten minutes"
    assert sum("api.process.front_end" in command(pid) for pid in below) == 2
    service.send(signal.SIGKILL)
    service.process.wait(END_WITHIN_S)
    until(lambda: not any(map(command, below)), "processes are left")


def test_a_relation_survives_a_killed_service_and_an_abandoned_upload_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    tuples = [[f"user {number}", "10.0.0.1"] for number in range(TUPLES)]
    body = b"".join(json.dumps(one).encode() + b"\n" for one in tuples)
    with served(folder, "--front-ends", "2") as service:
        token = service.token
        detector = service.call("POST", "/api/detectors", {"name": "d"})["id"]
        service.call("POST", f"/api/detectors/{detector}/rules", {"name": "r", "condition": "owns(user, ip)"})
        path = f"/api/detectors/{detector}/relations"
        assert not fires(service, detector, "user 1", 1_000)
        with Client(service.url, token) as client:
            assert client.send(calls.put_relation(detector, "owns", tuples)).tuples == TUPLES
        assert fires(service, detector, "user 1", 2_000)
        changed = service.call("PATCH", f"{path}/owns", {"remove": [tuples[1]], "add": [["new", "10.0.0.1"]]})
        for _ in range(4):
            abandon_upload(service, f"{path}/owns", body[: len(body) // 2])
        assert not fires(service, detector, "user 1", 3_000)
        kill(service)
    with served(folder, "--front-ends", "2") as service:
        service.token = token
        assert service.call("GET", path) == {"relations": [changed]}
        assert [fires(service, detector, user, 4_000) for user in ("user 1", "user 2", "new")] == [
            False,
            True,
            True,
        ]
        fork = service.call("POST", f"/api/detectors/{detector}/fork", {"name": "f"})["id"]
        assert service.call("GET", f"/api/detectors/{fork}/relations") == {"relations": [changed]}
