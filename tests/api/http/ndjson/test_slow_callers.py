"""Callers of streams who take no replies, send nothing, or vanish."""

import asyncio
from typing import Any

import pytest

from api.http.authentication import Authenticator
from api.http.body.memory import BodyMemory
from api.http.body.ndjson_stream import NdjsonStreams
from api.http.request.timeout import RequestTimeout, RequestTimeouts
from api.server.exchange import CallerGone
from api.settings import Settings
from engine.evaluation.wire.events import Answer, Done
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.front_end.memory_budget import MemoryBudget
from engine.runtime.front_end.permits import UNBOUNDED
from tests.api.http.ndjson.streams import echoes, good
from tests.api.scripted import DETECTOR, TOKEN, ScriptedBackend
from tests.api.streaming import line, stream
from tests.api.wire import Wire


async def test_a_caller_who_takes_no_replies_is_not_read_from_until_he_does(
    wire: Wire, scripted: ScriptedBackend
) -> None:
    async def long_answers(_: str, operation: Operation) -> Answer:
        count = operation.payload.count(b"\n") + 1
        return Done(b"\n".join([b'{"actions":[],"x":"' + b"x" * 5_000 + b'"}'] * count))

    scripted.answers = long_answers
    one = await stream(wire)
    text = line(0, a="y" * 100) * 1_000
    with pytest.raises(TimeoutError):  # noqa: PT012 -- which write waits is open
        async with asyncio.timeout(0.7):
            while True:
                await one.send(text)
    done = len(scripted.operations)
    await asyncio.sleep(0.1)
    assert len(scripted.operations) == done
    # What is read of 160 bytes each is bounded by what waits of 5 000 bytes each, in the sockets.
    assert sum(one.payload.count(b"\n") + 1 for one in scripted.operations) < 20_000
    await one.begun()
    await one.next()
    async with asyncio.timeout(10):
        while len(scripted.operations) == done:  # noqa: ASYNC110 -- there is no event for it
            await asyncio.sleep(0.01)
    assert scripted.operations[done].payload.count(b"\n") < 250, "so many have replies of a mebibyte"
    # To close would be to wait until all that was written has been read.
    one.connection.writer.transport.abort()
    assert await wire.comes_to_rest()


async def test_a_reply_that_waits_for_a_caller_who_is_gone_waits_no_longer(scripted: ScriptedBackend) -> None:
    """A server may be unable to tell us of it before it has got rid of the body that came before."""
    messages = [{"type": "http.request", "body": line() * 3_000, "more_body": True}] * 20
    messages.append({"type": "http.disconnect"})
    told = asyncio.Event()

    async def receive() -> Any:
        await asyncio.sleep(0)
        if len(messages) == 1:
            told.set()
        return messages.pop(0)

    async def send(message: Any) -> None:
        if message.get("body"):
            await told.wait()

    streams = NdjsonStreams(
        Settings(deadline_s=0.2),
        scripted,  # type: ignore[arg-type]
        authenticator=Authenticator(scripted, None),
        memory=BodyMemory(100_000_000, MemoryBudget(1 << 30)),
    )
    opened = streams.open(DETECTOR, f"Bearer {TOKEN}".encode(), UNBOUNDED)
    with pytest.raises(CallerGone):
        await opened.serve(receive, send, RequestTimeout(RequestTimeouts(1), receive, None))
    assert messages == []


@pytest.mark.parametrize("amid", ["a line", "work", "silence", "after the end"])
async def test_a_caller_who_vanishes_leaves_nothing(wire: Wire, scripted: ScriptedBackend, amid: str) -> None:
    started = asyncio.Event()

    async def never(detector_id: str, operation: Operation) -> Answer:
        started.set()
        if amid in {"work", "after the end"}:
            await asyncio.sleep(60)
        return echoes(detector_id, operation)

    scripted.answers = never
    one = await stream(wire)
    await one.begun()
    await one.send(line() * 3 + (line()[:9] if amid == "a line" else b""))
    if amid == "after the end":
        await one.end()
    await started.wait()
    await one.connection.close()
    assert await wire.comes_to_rest()
    assert scripted.under_way == 0
    assert scripted.cancelled == (amid in {"work", "after the end"})


async def test_a_silent_caller_is_told_and_may_go_on_with_another_request(hasty: Wire, echo: Any) -> None:
    one = await stream(hasty)
    await one.begun()
    for _ in range(8):
        # A blank line is a sign of life.
        await asyncio.sleep(0.1)
        await one.send(b"\n")
    await one.send(line())
    assert (await one.next())["length"] == len(line()) - 1
    closing = await one.next()
    assert (closing["done"], [entry["code"] for entry in closing["errors"]]) == (1, [1502])
    await one.end()
    assert await one.rest() == []
    assert await good(one)
