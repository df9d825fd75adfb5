"""The port for probes, while the loop that serves callers turns, is held up, or hangs."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from api.http.app import Application
from api.observability import probes, readiness
from api.observability.probes import Probes
from api.process.listening import StartError, listening_for_probes
from api.settings import Settings
from tests.local_runtime.service import local_service

Answer = tuple[int, bytes]


def ask(port: int, path: str, method: str = "GET") -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        assert response.headers["connection"] == "close"
        return response.status, response.read()
    finally:
        connection.close()


def serve(folder: Path, play: Callable[[Application, Probes, int], None]) -> None:
    """Play in a thread while an application is served by a loop whose clock is the machine's."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            answering = Probes(listener)
            try:
                async with local_service(folder) as service:
                    app = Application(Settings(data=folder), service.backend)
                    await asyncio.to_thread(play, app, answering, listener.getsockname()[1])
            finally:
                answering.end()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


class HeldUp:
    """Holds up the loop of a running application until the block ends."""

    def __init__(self, app: Application, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._go_on = threading.Event()

    def __enter__(self) -> None:
        begun = threading.Event()
        self._loop.call_soon_threadsafe(lambda: begun.set() or self._go_on.wait())
        begun.wait()

    def __exit__(self, *_: object) -> None:
        self._go_on.set()


def test_probes_are_answered_while_the_loop_that_serves_callers_is_held_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each page would have to be made anew.
    monkeypatch.setattr(readiness, "_KEPT_S", 0.0)

    def play(app: Application, answering: Probes, port: int) -> None:
        assert ask(port, "/healthz")[0] == 200
        status, body = ask(port, "/readyz")
        assert (status, json.loads(body)["errors"][0]["code"]) == (503, 1501), "it is not shown yet"
        answering.show(app.readiness, app.metrics_page)
        status, body = ask(port, "/readyz")
        assert (status, json.loads(body)["result"]) == (200, {"ready": True})
        status, page = ask(port, "/metrics?name[]=x")
        assert status == 200
        assert b"rule_detector_ready 1.0" in page
        with HeldUp(app, answering._serving):
            assert [ask(port, path)[0] for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3
            assert ask(port, "/metrics")[1] == page
            assert ask(port, "/healthz", "HEAD") == (200, b"")
        app.announce_shutdown()
        assert ask(port, "/readyz")[0] == 503
        assert ask(port, "/healthz")[0] == 200

    serve(tmp_path, play)


def test_a_loop_that_hangs_is_not_healthy_until_it_turns_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_BEAT_S", 0.05)

    def play(app: Application, answering: Probes, port: int) -> None:
        answering.show(app.readiness, app.metrics_page)
        assert ask(port, "/readyz")[0] == 200
        with HeldUp(app, answering._serving):
            comes_to_be(lambda: ask(port, "/healthz")[0] == 503)
            assert ask(port, "/readyz")[0] == 503
        comes_to_be(lambda: ask(port, "/healthz")[0] == 200)
        assert ask(port, "/readyz")[0] == 200

    serve(tmp_path, play)


def test_only_small_requests_for_three_pages_are_answered(tmp_path: Path) -> None:
    def play(_app: Application, _answering: Probes, port: int) -> None:
        assert ask(port, "/api/detectors")[0] == 404
        assert ask(port, "/healthz", "POST")[0] == 405
        for sent in (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"\x00" * 20_000):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as caller:
                caller.sendall(sent)
                with contextlib.suppress(ConnectionResetError):
                    assert caller.recv(1) == b""
        with socket.create_connection(("127.0.0.1", port), timeout=60) as caller:
            caller.sendall(b"nonsense\r\n\r\n")
            assert caller.recv(100).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert ask(port, "/healthz")[0] == 200

    serve(tmp_path, play)


def test_a_port_in_use_is_told_before_anything_else_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(StartError, match=f"port {port}: .* name another port with --probe-port"),
            listening_for_probes(Settings(probe_port=port)),
        ):
            pass
    with listening_for_probes(Settings()) as none:
        assert none is None


def comes_to_be(condition: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_s
        time.sleep(0.02)
