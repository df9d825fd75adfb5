"""Where the service listens, and how it names that."""

import asyncio
import socket
from contextlib import ExitStack

import pytest

from api.http.app import Application
from api.process import front_end
from api.process.listening import listening, url_at
from api.server.limits import ConnectionLimit
from api.settings import Settings
from tests.api.leaks import run
from tests.api.scripted import ScriptedBackend


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert url_at("::1", 8080) == "http://[::1]:8080"
    assert url_at("127.0.0.1", 8080) == "http://127.0.0.1:8080"


def test_a_name_of_both_kinds_is_listened_to_by_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with listening(Settings(host="localhost", port=0)) as (listener,):
        assert listener.getsockname()[0] == "127.0.0.1"


WAITING = 200
TURNS_MAX = WAITING // 4


def test_many_waiting_connections_are_accepted_in_a_few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[ConnectionLimit] = []

    def kept(*arguments: object) -> ConnectionLimit:
        limits.append(ConnectionLimit(*arguments))  # type: ignore[arg-type]  # as the front end passes them
        return limits[-1]

    monkeypatch.setattr(front_end, "ConnectionLimit", kept)
    run("uvloop", _turns_to_accept(limits))


async def _turns_to_accept(limits: list[ConnectionLimit]) -> None:
    settings = Settings()
    app, stop = Application(settings, ScriptedBackend()), asyncio.Event()
    with ExitStack() as callers:
        listener = socket.create_server(("127.0.0.1", 0), backlog=2 * WAITING)
        for _ in range(WAITING):
            callers.enter_context(socket.create_connection(listener.getsockname()))
        serving = asyncio.ensure_future(
            front_end.serve_on(
                listener, app, settings, until=stop.wait, wait_s=lambda: 0.0, grace_s=lambda: 10.0
            )
        )
        async with asyncio.timeout(60):
            while not (limits and len(limits[0])):  # noqa: ASYNC110 -- a turn is what is counted
                await asyncio.sleep(0)
            turns = 0
            while len(limits[0]) < WAITING:
                await asyncio.sleep(0)
                turns += 1
    stop.set()
    await serving
    assert turns < TURNS_MAX
