"""Which way a batch goes: beside Ray where it can, by Ray where nothing was sent, and never twice."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from engine.runtime.cluster.ray_ports import RayWorkerPort
from engine.runtime.contract import operations as ops
from engine.runtime.contract.calls import Activated, carry_out, encode_call
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.operations import Reply, decode_batch, encode_reply
from engine.runtime.transport import batch_connection
from engine.runtime.transport.batch_server import BatchServer
from engine.runtime.transport.frames import Address, Payload
from snapshots.errors import WriteFailed

BATCH = [ops.rules()]


class FakeMethod:
    def __init__(self, work: Callable[..., object]) -> None:
        self._work = work

    async def remote(self, *arguments: Any) -> object:
        return self._work(*arguments)


class FakeActor:
    """What Ray gives of an actor, which says by which way each batch came."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.before: Callable[[], object] = lambda: None
        self.handle_bytes = FakeMethod(lambda batch: self._carry_out("ray", batch))
        self.activate = FakeMethod(lambda *arguments: self._activate("ray", *arguments))
        self.listen = FakeMethod(self._listen)

    def _listen(self, *_: object) -> Address | None:
        return BatchServer(
            lambda batch: self._carry_out("beside", batch), lambda call: carry_out(Beside(self), call)
        ).address

    def _activate(self, way: str, detector_id: str, epoch: int) -> Activated:
        self.came.append(way)
        self.before()
        return Activated(damage=(detector_id,), records=epoch)

    def _carry_out(self, way: str, batch: Payload) -> bytes:
        assert decode_batch(batch) == BATCH
        self.came.append(way)
        self.before()
        return encode_reply(Reply([]))


class Beside:
    """The actor as a call on the connection finds it."""

    def __init__(self, actor: FakeActor) -> None:
        self._actor = actor

    def activate(self, detector_id: str, epoch: int) -> Activated:
        return self._actor._activate("beside", detector_id, epoch)


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> FakeActor:
    class Context:
        def get_node_id(self) -> str:
            return "node"

    monkeypatch.setattr("engine.runtime.cluster.ray_ports.ray.get_runtime_context", Context)
    monkeypatch.setattr("engine.runtime.cluster.ray_ports.ray.kill", lambda _: None)
    return FakeActor()


async def connected(actor: FakeActor, way: Any = "auto") -> RayWorkerPort:
    handle = RayWorkerPort(actor, "fake")
    await handle.connect(way)
    return handle


@pytest.mark.parametrize(("way", "expected"), [("auto", "beside"), ("tcp", "beside"), ("ray", "ray")])
async def test_batches_go_beside_ray_unless_ray_is_set(actor, way, expected):
    handle = await connected(actor, way)
    for _ in range(3):
        assert await handle.handle(BATCH) == Reply([])
    assert actor.came == [expected] * 3
    await handle.end()


async def test_a_batch_under_way_when_the_connection_breaks_is_not_sent_by_ray(actor):
    begun, go = threading.Event(), threading.Event()
    actor.before = lambda: (begun.set(), go.wait(10))
    handle = await connected(actor)
    asked = asyncio.create_task(handle.handle(BATCH))
    await asyncio.to_thread(begun.wait, 5)
    assert handle._connection is not None
    await handle._connection.close()
    with pytest.raises(ActorDied):
        await asked
    go.set()
    assert actor.came == ["beside"]
    await handle.end()


async def test_after_the_connection_broke_batches_go_by_ray_and_the_log_says_so_once(actor, caplog):
    handle = await connected(actor)
    await handle.handle(BATCH)
    assert handle._connection is not None
    await handle._connection.close()
    await handle.handle(BATCH)
    await handle.handle(BATCH)
    assert actor.came == ["beside", "ray", "ray"]
    assert len([one for one in caplog.records if "go by Ray" in one.message]) == 1
    await handle.end()


async def test_what_is_too_long_for_a_frame_goes_by_ray_and_the_next_does_not(actor, monkeypatch):
    handle = await connected(actor)
    with monkeypatch.context() as patch:
        patch.setattr(batch_connection, "FRAME_BYTES_MAX", 1)
        await handle.handle(BATCH)
    await handle.handle(BATCH)
    assert actor.came == ["ray", "beside"]
    await handle.end()


async def test_what_the_actor_raises_is_raised_and_not_tried_by_ray(actor):
    def fail() -> None:
        raise WriteFailed("the disk is full")

    actor.before = fail
    handle = await connected(actor)
    with pytest.raises(WriteFailed, match="the disk is full"):
        await handle.handle(BATCH)
    assert actor.came == ["beside"]
    await handle.end()


@pytest.mark.parametrize("problem", ["not offered", "not there", "not allowed"])
async def test_where_nothing_connects_batches_go_by_ray(actor, problem):
    def listen(*_: object) -> Address | None:
        match problem:
            case "not offered":
                return None
            case "not there":
                return Address("/nowhere/at/all", b"t" * 32)
        raise PermissionError("no socket here")

    actor.listen = FakeMethod(listen)
    handle = await connected(actor)
    await handle.handle(BATCH)
    assert actor.came == ["ray"]
    await handle.end()


async def test_the_end_of_an_actor_ends_what_is_under_way(actor):
    begun, go = threading.Event(), threading.Event()
    actor.before = lambda: (begun.set(), go.wait(10))
    handle = await connected(actor)
    asked = asyncio.create_task(handle.handle(BATCH))
    await asyncio.to_thread(begun.wait, 5)
    await handle.end()
    with pytest.raises(ActorDied):
        await asked
    go.set()


@pytest.mark.parametrize(("way", "expected"), [("auto", "beside"), ("ray", "ray")])
async def test_calls_go_the_same_way_as_batches(actor, way, expected):
    handle = await connected(actor, way)
    assert await handle.activate("d", 7) == Activated(damage=("d",), records=7)
    assert actor.came == [expected]
    await handle.end()


async def test_a_call_under_way_when_the_connection_breaks_is_not_made_by_ray(actor):
    begun, go = threading.Event(), threading.Event()
    actor.before = lambda: (begun.set(), go.wait(10))
    handle = await connected(actor)
    asked = asyncio.create_task(handle.activate("d", 1))
    await asyncio.to_thread(begun.wait, 5)
    assert handle._connection is not None
    await handle._connection.close()
    with pytest.raises(ActorDied):
        await asked
    go.set()
    assert actor.came == ["beside"]
    await handle.end()


async def test_after_the_connection_broke_calls_go_by_ray(actor):
    handle = await connected(actor)
    assert handle._connection is not None
    await handle._connection.close()
    await handle.activate("d", 1)
    assert actor.came == ["ray"]
    await handle.end()


def test_only_the_methods_of_the_contract_can_be_called(actor):
    with pytest.raises(ValueError, match="no method `listen`"):
        carry_out(actor, encode_call("listen", ()))
