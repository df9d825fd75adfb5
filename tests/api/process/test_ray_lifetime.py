"""When Ray is lost: what is blamed, and that an agent's end does not take the workers along."""

import asyncio
import json
import signal
import socket
import subprocess
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any

import pytest

from api.process.ray_lifetime import LastWords, stop_when_lost
from api.process.supervisor import _unless_stopped
from engine.runtime.cluster.session import ray_processes
from engine.runtime.cluster.session.ray_processes import RayProcesses, _held_children, agent_name
from engine.runtime.contract.errors import STARTING, DetectorUnavailable
from engine.runtime.process.processes import STOPPED, state_of
from tests.local_runtime.service import until


class Ray:
    """Processes that pass for Ray's: a raylet, a control store and an agent."""

    def __init__(self, stack: ExitStack) -> None:
        self.started = {
            name: stack.enter_context(subprocess.Popen(["sleep", "60"]))
            for name in ("raylet", "gcs_server", "dashboard agent")
        }
        self.processes = RayProcesses()
        for name, process in self.started.items():
            stack.callback(process.kill)
            (held,) = [one for one in _held_children(ray_processes.os.getpid()) if one.pid == process.pid]
            kept: Any = self.processes._agents if "agent" in name else self.processes._essential
            kept[name] = held
        self.watch = SimpleNamespace(gone=None, silent_s=0.0)

    def state(self, name: str) -> str:
        return state_of(self.started[name].pid)


def posted(port: int, body: bytes) -> tuple[int, str | None, Any]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as client:
        client.request("POST", "/api/detectors", body)
        response = client.getresponse()
        return response.status, response.getheader("Retry-After"), json.loads(response.read())["errors"]


def test_after_an_orderly_end_nobody_answers():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words, address = LastWords([listener]), listener.getsockname()
    socket.create_connection(address).close()
    words.close()
    words.begin("too late")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gcs_server", "ray's process `gcs_server` ended by itself"),
        ("dashboard agent", "ray's dashboard agent ended by itself"),
    ],
)
async def test_what_ended_is_blamed_and_told_to_the_log_and_to_all_who_connect(name, reason, caplog):
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        words = stack.enter_context(closing(LastWords([listener])))
        ray, stopping = Ray(stack), asyncio.Event()
        looking = asyncio.create_task(stop_when_lost(ray, words, stopping))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        ray.started[name].kill()
        await stopping.wait()
        assert words.reason == reason
        assert f"{reason}: the service ends; it answers 503" in caplog.text
        # The server of requests has closed its socket.
        port = listener.getsockname()[1]
        listener.close()
        for body in (b"", b"x" * 1_000_000):
            told = await asyncio.to_thread(posted, port, body)
            assert told == (503, "1", [{"code": 1503, "message": f"the server is shutting down: {reason}"}])
        held = name == "dashboard agent"
        await until(lambda: (ray.state("raylet") == STOPPED) is held)
        if held:
            # It is stopped, and takes no signal but one.
            ray.started["raylet"].send_signal(signal.SIGTERM)
            assert ray.processes.end(lambda: None)
            assert ray.started["raylet"].wait() == -signal.SIGKILL
            await asyncio.sleep(0)
            assert words.reason == reason, "the raylet is not blamed for the end of its agent"
        looking.cancel()


def test_agents_are_known_by_their_command_lines():
    assert agent_name("ray::DashboardAgent") == "dashboard agent"
    assert agent_name("python\0-u\0/lib/ray/dashboard/agent.py\0--x") == "dashboard agent"
    assert agent_name("ray::RuntimeEnvAgent") == "runtime environment agent"
    assert agent_name("python\0/lib/ray/_private/runtime_env/agent/main.py") == "runtime environment agent"
    for other in ("", "ray::IDLE", "python\0/lib/ray/dashboard/dashboard.py", "ray::DetectorActor.watch"):
        assert agent_name(other) is None


class Starting:
    """A backend whose start takes for ever, because the directory cannot be reached."""

    def __init__(self) -> None:
        self.cancelled = False

    async def start(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def test_a_start_that_takes_long_ends_with_a_signal_or_the_loss_of_ray():
    backend, stopping = Starting(), asyncio.Event()
    starting = asyncio.create_task(_unless_stopped(backend.start(), stopping))
    await asyncio.sleep(0)
    stopping.set()
    await starting
    assert backend.cancelled


async def test_a_start_that_fails_says_why():
    async def start() -> None:
        raise DetectorUnavailable(STARTING, "the directory cannot be reached")

    with pytest.raises(DetectorUnavailable, match="cannot be reached"):
        await _unless_stopped(start(), asyncio.Event())
