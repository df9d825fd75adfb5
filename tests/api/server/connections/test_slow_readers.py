"""Callers who read slowly: none is cut off who takes 16 KiB between two checks, whatever the system tells."""

import asyncio
import socket
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from api.server.sender import CHECKS_SAVED_MAX, STALLED_S, Sender, StallWatch, unsent_bytes
from engine.runtime.front_end.memory_budget import MemoryBudget
from tests.skipping_clock import SkippingLoop

KIB = 1024
REPLY_BYTES = 20_000 * KIB
ALLOWED_BYTES = 16 * KIB
"""What a caller takes between two checks who reads as slowly as allowed."""
HOUR_S = 3_600.0


class Transport:
    """What is left of a reply, by a function of the time."""

    def __init__(self, loop: SkippingLoop, left_at: Callable[[float], float]) -> None:
        self._loop = loop
        self._left_at = left_at
        self.aborted_s: float | None = None

    def get_write_buffer_size(self) -> int:
        return max(0, int(self._left_at(self._loop.time())))

    def get_extra_info(self, _: str) -> None:
        return None

    def abort(self) -> None:
        self.aborted_s = self._loop.time()


def cut_off_s(left_at: Callable[[float], float], within_s: float = HOUR_S) -> float | None:
    """Return when a caller is cut off, None if it is not."""
    loop = SkippingLoop()
    try:
        transport = Transport(loop, left_at)
        watch = StallWatch(loop, transport)  # type: ignore[arg-type]
        loop.call_later(within_s, loop.stop)
        loop.run_forever()
        watch.end()
        return transport.aborted_s
    finally:
        loop.close()


def reading(bytes_per_s: float, step_bytes: int = 1, size: int = REPLY_BYTES) -> Callable[[float], float]:
    """Return what is left of a reply that is read at a pace, and told by the system in steps."""
    return lambda now_s: size - bytes_per_s * now_s // step_bytes * step_bytes


@pytest.mark.parametrize("step_bytes", [1, 16 * KIB, 64 * KIB, 128 * KIB])
@pytest.mark.parametrize("bytes_per_s", [1.001 * ALLOWED_BYTES / STALLED_S, 64 * KIB])
def test_nobody_is_cut_off_who_reads_at_the_pace(bytes_per_s: float, step_bytes: int) -> None:
    within_s = min(HOUR_S, REPLY_BYTES / bytes_per_s - STALLED_S)
    assert cut_off_s(reading(bytes_per_s, step_bytes), within_s) is None


@pytest.mark.parametrize("bytes_per_s", [0, 0.5 * ALLOWED_BYTES / STALLED_S, 0.9 * ALLOWED_BYTES / STALLED_S])
def test_who_reads_less_is_cut_off_and_the_sooner_the_less(bytes_per_s: float) -> None:
    share = bytes_per_s * STALLED_S / ALLOWED_BYTES
    found = cut_off_s(reading(bytes_per_s))
    assert found is not None
    assert found == pytest.approx(CHECKS_SAVED_MAX * STALLED_S / (1 - share), abs=2 * STALLED_S)


def test_what_was_read_quickly_is_saved_for_a_bounded_time() -> None:
    def fast_then_nothing(now_s: float) -> float:
        return REPLY_BYTES - 500 * KIB * min(now_s, 30)

    found = cut_off_s(fast_then_nothing)
    assert found is not None
    assert 30 + CHECKS_SAVED_MAX * STALLED_S <= found <= 30 + (CHECKS_SAVED_MAX + 2) * STALLED_S


def test_the_last_bytes_may_be_fewer() -> None:
    """What is left counts as the pace: it has to be taken before the checks that are saved are used up."""
    stuck = cut_off_s(lambda _: 100)
    assert stuck is not None
    assert stuck <= (CHECKS_SAVED_MAX + 2) * STALLED_S
    # A connection of which all is sent, and that the caller does not close, is closed at the next check.
    assert cut_off_s(lambda now_s: 100 if now_s < 50 else 0) == pytest.approx(60, abs=1)


async def test_what_the_system_holds_is_unsent_until_the_caller_reads() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * KIB)
    caller.connect(listener.getsockname())
    served, _ = listener.accept()
    served.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1_024 * KIB)
    _, writer = await asyncio.open_connection(sock=served)
    with listener, caller:
        writer.write(b"x" * 500 * KIB)
        await asyncio.sleep(0.05)
        before, waiting = unsent_bytes(writer.transport), writer.transport.get_write_buffer_size()
        assert before - waiting > 200 * KIB
        taken = 0
        while taken < 150 * KIB:
            taken += len(caller.recv(16 * KIB))
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert before - unsent_bytes(writer.transport) >= taken - 64 * KIB
        writer.transport.abort()
    await asyncio.sleep(0.01)
    assert unsent_bytes(writer.transport) == 0


async def test_a_budget_sees_what_is_read_of_what_the_system_has_taken() -> None:
    """It has taken some MiB before a caller reads, and takes more only once a good part of that is read."""
    listener = socket.create_server(("127.0.0.1", 0))
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * KIB)
    caller.connect(listener.getsockname())
    served, _ = listener.accept()
    served.setblocking(False)
    queued = served.send(b"x" * 1_024 * KIB)
    memory = MemoryBudget(1_024 * KIB)
    sender = Sender(asyncio.get_running_loop(), FullTransport(served), memory)  # type: ignore[arg-type]
    sender.caller = SimpleNamespace(is_authenticated=True)
    sender.pause()
    draining = asyncio.ensure_future(sender.drain())
    with listener, caller, served:
        await asyncio.sleep(0)
        [unread] = memory._unread
        assert (unread.bytes, unread.progresses(0.0)) == (50 * KIB, False)
        for _ in range(queued // KIB):
            caller.recv(KIB)
        assert unread.progresses(1.0)
        sender.resume()
        await draining
    assert memory.held == 0


async def test_who_has_taken_all_is_let_go_although_asyncio_has_closed_the_connection_itself() -> None:
    loop = asyncio.get_running_loop()
    served, caller = socket.socketpair()
    caller.setblocking(False)
    transport, _ = await loop.create_unix_connection(asyncio.Protocol, sock=served)
    sender = Sender(loop, transport, MemoryBudget(1_024 * KIB))
    with caller:
        transport.write(b"x" * 5_000 * KIB)
        sender.close()
        while await loop.sock_recv(caller, 1_024 * KIB):
            pass
        sender.abort()


class FullTransport:
    """A transport that sends nothing more on its socket."""

    def __init__(self, served: socket.socket) -> None:
        self._served = served

    def get_write_buffer_size(self) -> int:
        return 50 * KIB

    def get_extra_info(self, name: str) -> socket.socket:
        assert name == "socket"
        return self._served
