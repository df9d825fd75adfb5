"""Starts or joins Ray for the service, watches it, and stops it at the end."""

import asyncio
import atexit
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from api.observability.probes import SmallServer
from api.schema.envelope import Response, failure
from engine.language.diagnostics import Entry
from engine.runtime.cluster.session import ray_session as cluster
from engine.runtime.cluster.session.ray_watch import RayWatch
from engine.runtime.concurrency.threads import LoopThread

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_CONNECTIONS_MAX: Final = 1000
_RETRY: Final = ((b"retry-after", b"1"),)
_SILENT_MOST_S: Final = 30.0
"""A Ray that is silent for this long counts as lost, because its processes would soon end by themselves."""


def start_ray(address: str, join_within_s: float) -> cluster.Cluster:
    """Start Ray, or join the cluster at `address`. Raises ClusterError."""
    try:
        return cluster.start(address, join_within_s)
    except SystemExit:
        # Ray turns SIGTERM into SystemExit while it starts.
        raise KeyboardInterrupt from None


@contextmanager
def stopping_ray(ray: cluster.Cluster) -> Iterator[None]:
    """Stop Ray at the end of the block, and make the interpreter's exit end the process at once."""
    status = 1
    try:
        yield
        status = 0
    except KeyboardInterrupt:
        status = 0
        raise
    finally:
        if not cluster.stop(ray):
            _log.warning("ray did not end in time, and its processes were killed")
        # Ray's threads may outlive its shutdown, and would keep the process alive or crash it.
        atexit.register(_exit_at_once, status)


def _exit_at_once(status: int) -> None:
    """End the process without waiting for any thread."""
    # Write suppressed log records now, because logging's own exit handler runs too late.
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


class LastWords:
    """After the loss of Ray, answers all new connections with 503 and the reason, until the process ends.

    The HTTP server soon accepts no more connections, but saving detectors takes seconds.
    """

    def __init__(self, listeners: Sequence[socket.socket]) -> None:
        self._listeners = [listener.dup() for listener in listeners]
        self._thread: LoopThread | None = None
        self.reason: str | None = None
        """Why Ray is lost; None before."""

    def begin(self, reason: str) -> None:
        """Answer from now on, unless `close` was called."""
        self.reason = reason
        refusal = failure(503, [Entry(1503, f"the server is shutting down: {reason}")], _RETRY)

        async def respond(_method: bytes, _path: bytes) -> Response:
            return refusal

        if self._listeners:
            self._thread = LoopThread("last words")
        for listener in self._listeners:
            assert self._thread is not None, "there is a thread if there is a listener"
            self._thread.begin(SmallServer(respond, _CONNECTIONS_MAX).serve(listener))

    def close(self) -> None:
        """Accept no more connections. An orderly end does this before the HTTP server does."""
        if self._thread is not None:
            self._thread.end()
        for listener in self._listeners:
            listener.close()
        self._listeners = []


async def stop_when_lost(ray: cluster.Cluster, words: LastWords, stopping: asyncio.Event) -> None:
    """Set `stopping`, and begin the last words, once Ray is lost.

    A joined cluster may be silent as long as its operator allows: active detectors are served meanwhile.
    """
    loop = asyncio.get_running_loop()

    def take_note(reason: str) -> None:
        if words.reason is None:
            _log.error("%s: the service ends; it answers 503 while it saves detectors", reason)
            words.begin(reason)
        stopping.set()

    def agent_ended(name: str) -> None:
        ray.processes.hold_raylet()
        take_note(f"ray's {name} ended by itself")

    for name, descriptor in ray.processes.essential.items():
        _once(loop, descriptor, partial(take_note, f"ray's process `{name}` ended by itself"))
    for name, descriptor in ray.processes.agents.items():
        _once(loop, descriptor, partial(agent_ended, name))
    while True:
        await asyncio.sleep(_LOOK_S)
        if ray.watch.gone is not None:
            take_note(ray.watch.gone)
        elif (reason := silent_too_long(ray.watch)) is not None and ray.processes.essential:
            take_note(reason)


def _once(loop: asyncio.AbstractEventLoop, descriptor: int, ended: Callable[[], None]) -> None:
    """Call `ended` when the process of a pidfd ends."""

    def readable() -> None:
        # The descriptor stays readable, so the callback would be called again.
        loop.remove_reader(descriptor)
        ended()

    loop.add_reader(descriptor, readable)


def silent_too_long(watch: RayWatch) -> str | None:
    """Return why a silent Ray counts as lost; None if it does not."""
    if watch.silent_s < _SILENT_MOST_S:
        return None
    return f"ray has not answered for {_SILENT_MOST_S:g} seconds ({watch.problem() or 'it answers again'})"
