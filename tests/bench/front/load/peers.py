"""The baselines of the front end, each in its own process, which ends with its standard input.

    python -m tests.bench.front.load.peers bare
    python -m tests.bench.front.load.peers ray

The first is a bare ASGI application under the service's server, which prints where it listens; it answers
in one go, as evaluations are answered. The other is an actor of Ray: for each line with a number it prints
what so many calls took.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.bench.measuring.fresh import ROOT


class Peer:
    """A running peer that reads lines."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.pid = process.pid

    def heard(self) -> str:
        """Return its next line of output."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the peer ended with {self._process.wait(10)}"
        return line.strip()

    def calls_ms(self, count: int) -> list[float]:
        """Have this many calls made, one after another; return how long each took."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        took_ms: list[float] = json.loads(self.heard())
        return took_ms


@contextmanager
def peer(kind: str) -> Iterator[Peer]:
    """Yield a peer; it ends on exit, or with this process."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, kind],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Peer(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _bare_app() -> Any:
    """Return an application that reads the body and answers like an evaluation without actions."""
    from api.schema.envelope import success  # noqa: PLC0415
    from api.server.exchange import RESPOND  # noqa: PLC0415

    constant = success(b'{"actions":[]}')

    async def app(scope: Any, receive: Any, send: Any) -> None:
        respond = scope.get("state", {}).get(RESPOND)
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        more = True
        while more:
            more = (await receive()).get("more_body", False)
        await respond(constant.status, constant.own_headers(), constant.body)

    return app


def serve_bare() -> None:
    """Serve the bare application like the service: with the same server, configuration and loop."""
    import uvloop  # noqa: PLC0415

    from api.server.hypercorn_config import request_bounds, serve, server_config  # noqa: PLC0415
    from api.settings import Settings  # noqa: PLC0415
    from engine.runtime.process.collector import settle  # noqa: PLC0415

    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)

    async def until_the_end() -> None:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
        await ended.wait()

    async def served() -> None:
        settings = Settings()
        config = server_config(settings)
        config.bind = [f"fd://{listener.detach()}"]
        config.graceful_timeout = 0.5
        config.errorlog = None
        settle()
        await serve(_bare_app(), config, until_the_end, bounds=request_bounds(settings))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(served())


def call_ray() -> None:
    """Call a method that does nothing, of an actor like the service's, as often as each line says."""
    import uvloop  # noqa: PLC0415

    from engine.runtime.cluster.ray_calls import OPTIONS, ray  # noqa: PLC0415
    from engine.runtime.cluster.session import ray_session as cluster  # noqa: PLC0415

    class Bare:
        def nothing(self) -> None:
            """Return."""

    started = cluster.start()
    bare = ray.remote(**OPTIONS)(Bare).remote()

    async def calls_ms(count: int) -> list[float]:
        took_ms = []
        for _ in range(count):
            began_ns = time.perf_counter_ns()
            await bare.nothing.remote()
            took_ms.append((time.perf_counter_ns() - began_ns) / 1e6)
        return took_ms

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(calls_ms(10))
            print("ready", flush=True)
            for line in sys.stdin:
                print(json.dumps(runner.run(calls_ms(int(line)))), flush=True)
    finally:
        cluster.stop(started)


if __name__ == "__main__":
    {"bare": serve_bare, "ray": call_ray}[sys.argv[1]]()
