"""Callers that read no answers: how much the service holds for them, and how others are served."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service_process import Served, served

MIB = 1024 * 1024
BUDGET_MB = 64
SLACK_BYTES = 64 * MIB
"""What the allocator and the connections themselves may add to the budget."""
HOGS = 24
RULES = 100
EVENTS = 400
"""Each has an answer of about 33 KB; a batch, one of 13 MB."""
WATCHED_S = 5.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    options = {
        "max-memory-mb": BUDGET_MB,
        "max-answer-bytes": 16 * MIB,
        "max-batch-body-bytes": 4 * MIB,
        "max-reading-bytes": 32 * MIB,
    }
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    with served(tmp_path_factory.mktemp("unread") / "data", *given) as made:
        yield made


def resident_bytes(service: Served, figure: str) -> int:
    """Return the resident memory of the front end: VmRSS, or VmHWM for its peak."""
    status = Path(f"/proc/{service.process.pid}/status").read_text("ascii")
    (line,) = [line for line in status.splitlines() if line.startswith(figure)]
    return int(line.split()[1]) * 1024


def forget_peak(service: Served) -> None:
    Path(f"/proc/{service.process.pid}/clear_refs").write_text("5", "ascii")


def hog(service: Served, path: str, body: bytes, media_type: str) -> socket.socket:
    """Send a request, and read nothing."""
    host, _, port = service.url.removeprefix("http://").rpartition(":")
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    caller.settimeout(20)
    caller.connect((host, int(port)))
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.token}\r\n"
        f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    caller.sendall(head.encode() + body)
    return caller


@pytest.mark.ray
@pytest.mark.storm
@pytest.mark.parametrize("shape", ["batches", "streams"])
def test_answers_that_nobody_reads_take_no_more_than_the_budget(service: Served, shape: str) -> None:
    *loud, quiet = [service.call("POST", "/api/detectors", {"name": name})["id"] for name in "123q"]
    for detector in loud:
        for _ in range(RULES):
            service.call(
                "POST", f"/api/detectors/{detector}/rules", {"name": "n" * 250, "condition": "a == 1"}
            )
    event = b'{"fields":{"a":1},"timestamp_ms":0}'
    body, media_type = b'{"events":[' + b",".join([event] * EVENTS) + b"]}", "application/json"
    if shape == "streams":
        body, media_type = b'{"event":' + event + b"}\n", "application/x-ndjson"
        body *= 5 * EVENTS
    small = {"event": {"fields": {}, "timestamp_ms": 0}}
    assert service.call("POST", f"/api/detectors/{quiet}/evaluate", small) == {"actions": []}
    forget_peak(service)
    before_bytes = resident_bytes(service, "VmRSS")
    paths = [f"/api/detectors/{detector}/evaluate/batch" for detector in loud]
    hogs = [hog(service, paths[number % len(paths)], body, media_type) for number in range(HOGS)]
    try:
        until_s = time.monotonic() + WATCHED_S
        while time.monotonic() < until_s:
            assert service.call("POST", f"/api/detectors/{quiet}/evaluate", small) == {"actions": []}
            time.sleep(0.02)
        assert resident_bytes(service, "VmHWM") - before_bytes < BUDGET_MB * MIB + SLACK_BYTES
        # Others' batches are served too: connections that read nothing are closed for them.
        give_up_s = time.monotonic() + 120
        path = f"/api/detectors/{quiet}/evaluate/batch"
        while (reply := service.request("POST", path, {"events": [small["event"]]})).status_code != 200:
            assert reply.json()["errors"][0]["code"] == 1401
            assert time.monotonic() < give_up_s
            time.sleep(0.2)
    finally:
        for caller in hogs:
            caller.close()
