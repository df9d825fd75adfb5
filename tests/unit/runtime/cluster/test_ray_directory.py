"""The directory as a service reaches it, while the loop that serves callers is held up."""

import asyncio
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from engine.runtime.cluster import ray_directory
from engine.runtime.cluster.ray_calls import RayActor
from engine.runtime.cluster.ray_directory import RayDirectory
from engine.runtime.concurrency.threads import LoopThread
from engine.runtime.contract.requests.calls import Address
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.transport.connecting import Listener
from engine.runtime.transport.server_connection import ServerConnection

SILENT_S = 1.0


class Catalogue:
    """A directory in a thread: as Ray's handle to it, and as it serves connections.

    `asked` is set when it is asked for a sign of life, and `silent` keeps it from answering.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._thread = LoopThread("directory")
        self.asked = threading.Event()
        self.silent = False
        self.lost_before = -1
        """How many directories were lost before it was asked for last."""
        self.connections = 0
        self.child = subprocess.Popen(["sleep", "60"])
        """What passes for its process."""
        self._links: list[Any] = []
        self._listeners: list[Listener] = []
        for methods in ({"open": self._open, "compare": self._compare}, {}):
            sign_of_life = {"ping": self._alive, "beat": self._alive, "turn": self._alive}
            link = partial(self._link, {**methods, **sign_of_life})
            self._listeners.append(self._thread.begin(Listener.start(link)).result())

    def _link(self, methods: Any) -> Any:
        self.connections += 1
        self._links.append(ServerConnection(methods).link())
        return self._links[-1]

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        self._thread.begin(self._close()).result()
        self._thread.end()

    def die(self) -> None:
        """End its process and its connections."""
        self.child.kill()
        for link in self._links:
            self._thread.loop.call_soon_threadsafe(link.abort)

    async def _close(self) -> None:
        for listener in self._listeners:
            listener.close()

    async def _alive(self) -> int:
        self.asked.set()
        await asyncio.sleep(0.02)
        while self.silent:  # noqa: ASYNC110 -- for as long as a test wants
            await asyncio.sleep(0.02)
        return 0

    async def _open(self, _node: str) -> str:
        return str(self._data)

    async def _compare(self, *_: object) -> list[Any]:
        return []

    def __getattr__(self, method: str) -> Any:
        """A method of the actor."""
        main, beats = self._listeners
        answers = {"listen": (self.child.pid, main.address, beats.address)}

        async def remote() -> tuple[int, Address, Address]:
            return answers[method]

        return SimpleNamespace(remote=remote)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalogue]:
    one = Catalogue(tmp_path.resolve())

    def remote(*arguments: Any) -> Catalogue:
        one.lost_before = arguments[-1]
        return one

    handle = SimpleNamespace(remote=remote)
    context = SimpleNamespace(get_node_id=lambda: "node")
    fake = SimpleNamespace(
        remote=lambda **_: lambda _: SimpleNamespace(options=lambda **_: handle),
        get_runtime_context=lambda: context,
    )
    monkeypatch.setattr(ray_directory, "ray", fake)
    monkeypatch.setattr(ray_directory, "control_store", lambda: SimpleNamespace(cluster_id=b"cluster"))
    monkeypatch.setattr(RayDirectory, "_where", lambda _: None)
    monkeypatch.setattr(RayDirectory, "_start_process", lambda _: None)
    yield one
    one.close()


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The actors that were ended."""
    names: list[str] = []

    async def end(actor: RayActor) -> None:
        names.append(actor.name)

    monkeypatch.setattr(RayActor, "end", end)
    return names


def reached(tmp_path: Path) -> RayDirectory:
    return RayDirectory(RuntimeSettings(data=tmp_path, folder_id="f", node_timeout_s=SILENT_S), {})


def test_a_service_that_is_held_up_itself_does_not_replace_the_directory(
    tmp_path: Path, directory: Catalogue, ended: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def hold_up() -> None:
        reach = reached(tmp_path)
        client = await reach.connect()
        for _ in range(2):
            directory.asked.clear()
            while not directory.asked.is_set():  # noqa: ASYNC110 -- another thread sets it
                await asyncio.sleep(0.001)
            # A sign of life is under way.
            time.sleep(1.5 * SILENT_S)  # noqa: ASYNC251 -- that is what is tested
            await asyncio.sleep(0.1)
            assert client.link.usable
        assert ended == []
        client.link.abort()
        await reach.end()

    # The clock of other tests' loops does not run while they are held up.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(hold_up())
    assert "is replaced" not in caplog.text


def test_a_silent_directory_is_replaced_and_one_whose_connection_ended_is_not(
    tmp_path: Path, directory: Catalogue, ended: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        reach = reached(tmp_path)
        first = await reach.connect()
        first.link.abort()
        second = await reach.connect()
        await asyncio.sleep(2 * SILENT_S)
        assert second.link.usable
        assert ended == []
        directory.silent = True
        gone = asyncio.Event()
        second.ended = gone.set
        async with asyncio.timeout(60):
            await gone.wait()
        assert ended == ["directory-f"]
        await reach.end()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(play())
    assert f"the directory (pid {directory.child.pid} on the node " in caplog.text
    assert ") has not answered for 1 s, and is replaced" in caplog.text


def test_a_directory_that_was_killed_leaves_a_line_and_is_counted_and_one_that_is_left_does_not(
    tmp_path: Path, directory: Catalogue, ended: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        reach = reached(tmp_path)
        client = await reach.connect()
        assert directory.lost_before == 0
        directory.die()
        async with asyncio.timeout(60):
            while "has ended, and is replaced" not in caplog.text:  # noqa: ASYNC110 -- a thread logs it
                await asyncio.sleep(0.02)
        assert not client.link.usable
        await reach.connect()
        assert directory.lost_before == 1, "the next one goes on counting"
        caplog.clear()
        await reach.end()
        directory.die()
        await asyncio.sleep(2 * SILENT_S)
        assert "is replaced" not in caplog.text

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(play())
    assert ended == ["directory-f"], "by the service that left"
