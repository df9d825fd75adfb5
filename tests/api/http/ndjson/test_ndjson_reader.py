"""Lines of a body that is still coming: split wherever they are cut, and never more of them than agreed."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from api.http.body.memory import BodyMemory
from api.http.body.ndjson_reader import LINES_MAX, NdjsonReader
from api.server.exchange import CallerGone, Message
from engine.language.diagnostics import Refusal
from engine.runtime.front_end.memory_budget import MemoryBudget
from tests.skipping_clock import SkippingLoop

LINE_BYTES = 100_000


def _memory(bytes_max: int) -> BodyMemory:
    return BodyMemory(bytes_max, MemoryBudget(1 << 30))


class Body:
    """A body in parts, as a server gives them; after them the caller stays, or goes."""

    def __init__(self, parts: Iterable[bytes], *, ends: bool = True, goes: bool = False) -> None:
        self.parts = iter(parts)
        self.ends = ends
        self.goes = goes
        self.received_bytes = 0

    async def __call__(self) -> Message:
        part = next(self.parts, None)
        if part is not None:
            self.received_bytes += len(part)
            return {"type": "http.request", "body": part, "more_body": True}
        if self.goes:
            return {"type": "http.disconnect"}
        if self.ends:
            self.ends = False
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.sleep(60)
        raise AssertionError("nobody waits so long")


@asynccontextmanager
async def reading(
    body: Body, line_bytes_max: int = LINE_BYTES, patience_s: float = 5, memory: BodyMemory | None = None
) -> AsyncIterator[NdjsonReader]:
    lines = NdjsonReader(body, line_bytes_max, patience_s, memory or _memory(100_000_000))
    task = asyncio.create_task(lines.read())
    yield lines
    task.cancel()
    await asyncio.wait([task])


async def all_of(body: Body, line_bytes_max: int = LINE_BYTES) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with reading(body, line_bytes_max) as lines:
        while batch := await lines.take():
            assert len(batch) <= LINES_MAX
            found += batch
        assert lines.held_bytes == 0
        return found


TEXT = b'{"a":1}\n\n \t\r\n{"b":"\xc3\xa4"}\r\n' + b"x" * 9 + b"\nlast"
EXPECTED = [b'{"a":1}', b'{"b":"\xc3\xa4"}\r', b"x" * 9, b"last"]


async def test_lines_are_the_same_wherever_they_are_cut() -> None:
    for first in range(len(TEXT) + 1):
        for second in range(first, len(TEXT) + 1):
            assert await all_of(Body([TEXT[:first], TEXT[first:second], TEXT[second:]])) == EXPECTED
    assert await all_of(Body([bytes([byte]) for byte in TEXT])) == EXPECTED
    assert await all_of(Body([TEXT + b"\n"])) == EXPECTED
    for empty in ([], [b""], [b"\n \n"], [b" "]):
        assert await all_of(Body(empty)) == []


@pytest.mark.parametrize("blank", [b"\n", b" \n", b"\r\n", b" \t \r\n"])
async def test_blank_lines_are_passed_over_together(blank: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    # A connection is read some 320 KiB ahead. Line by line, that takes a third of a second.
    put: list[bytes] = []
    monkeypatch.setattr(NdjsonReader, "_put", lambda _, line: put.append(line))
    await all_of(Body([b"{}\n" + blank * 100_000 + b"{}\n" + blank * 100_000]))
    assert put == [b"{}", b"{}", b""]


async def test_a_blank_line_that_is_too_long_leaves_its_place_wherever_it_is_cut() -> None:
    text = b"\n" + b" " * 10 + b"\n" + b" " * 11 + b"\n\n" + b" " * 11
    for first in range(len(text) + 1):
        assert await all_of(Body([text[:first], text[first:]]), line_bytes_max=10) == [None, None]


@pytest.mark.parametrize("step", [1, 3, 7, 1_000])
async def test_a_line_that_is_too_long_leaves_its_place_and_no_other_suffers(step: int) -> None:
    text = b"ok\n" + b"y" * 11 + b"\n" + b"z" * 10 + b"\n" + b" " * 50 + b"\nok\n" + b"w" * 3_000
    parts = [text[at : at + step] for at in range(0, len(text), step)]
    assert await all_of(Body(parts), 10) == [b"ok", None, b"z" * 10, None, b"ok", None]


async def test_what_has_come_is_given_at_once_and_no_more_than_a_batch() -> None:
    async with reading(Body([b"a\nb\nc"], ends=False)) as lines:
        assert await lines.take() == [b"a", b"b"]
    body = Body([b"x\n" * 2_500])
    async with reading(body) as lines:
        assert [len(await lines.take()) for _ in range(4)] == [1_000, 1_000, 500, 0]


@pytest.mark.parametrize("part", [b"z\n" * 10, b"z\n" * 50_000, (b"z" * 999 + b"\n") * 60, b"z" * 70_000])
async def test_no_more_is_received_while_nothing_is_taken(part: bytes) -> None:
    def endless() -> Iterable[bytes]:
        while True:
            yield part + b"\n"

    body = Body(endless())
    async with reading(body) as lines:
        for _ in range(20):
            held = 0
            for _ in range(200):
                await asyncio.sleep(0)
                held = max(held, lines.held_bytes)
            assert held <= 1024 * 1024 + LINE_BYTES + 2 * len(part)
            before = body.received_bytes
            await asyncio.sleep(0.001)
            assert body.received_bytes == before
            assert await lines.take()


async def test_a_line_without_end_is_not_held() -> None:
    held: list[int] = []

    def endless() -> Iterable[bytes]:
        for _ in range(1_000):
            held.append(lines.held_bytes)
            yield b"q" * 1_000

    async with reading(Body(endless(), ends=False), 5_000) as lines:
        await asyncio.sleep(0.01)
        assert held == [0, 1_000, 2_000, 3_000, 4_000, 5_000, *[0] * 994]


@pytest.mark.parametrize(
    ("first", "taken"),
    [
        (b"x\n" * LINES_MAX, LINES_MAX),
        (b"x" * 1024 * 1024 + b"\n", 1),
        (b"x\n" * (LINES_MAX - 1), LINES_MAX),
        (b"x" * (1024 * 1024 - 1) + b"\n", 2),
    ],
    ids=["as many lines", "as many bytes", "one line less", "one byte less"],
)
async def test_a_batch_is_full_at_the_line_and_at_the_byte(first: bytes, taken: int) -> None:
    parts = iter([first + b"y\n", b"z\n"])
    async with reading(Body(parts, ends=False), 2 * 1024 * 1024) as lines:
        await asyncio.sleep(0.01)
        assert len(await lines.take()) == taken
    body = Body([first, b"y\n", b"z\n"], ends=False)
    async with reading(body, 2 * 1024 * 1024) as lines:
        await asyncio.sleep(0.01)
        is_full = taken == len(first.splitlines())
        assert body.received_bytes == len(first) + (0 if is_full else 2)


class Slow(Body):
    async def __call__(self) -> Message:
        await asyncio.sleep(0.02)
        return await super().__call__()


async def test_silence_has_an_end_and_any_line_breaks_it() -> None:
    async with reading(Body([b"a\n"], ends=False), patience_s=0.02) as lines:
        assert await lines.take() == [b"a"]
        with pytest.raises(Refusal, match=r"no line arrived for 0.02 s") as caught:
            await lines.take()
        assert caught.value.code == 1502
    async with reading(Slow([b"\n"] * 10 + [b"a\n"]), patience_s=0.1) as lines:
        assert await lines.take() == [b"a"]


class NextTurn(Body):
    async def __call__(self) -> Message:
        await asyncio.sleep(0)
        return await super().__call__()


@pytest.mark.parametrize(
    ("arrives", "ends", "taken"),
    [(b"a\n", False, [b"a"]), (b"\n", False, None), (b"", True, []), (b"a", False, None)],
    ids=["a line", "a blank line", "the end", "half a line"],
)
def test_what_arrives_while_the_loop_is_late_counts(
    *, arrives: bytes, ends: bool, taken: list[bytes] | None
) -> None:
    async def work(loop: SkippingLoop) -> None:
        def be_late() -> None:
            loop.clock.now_s += 0.1

        async with reading(NextTurn([arrives] if arrives else [], ends=ends), patience_s=0.05) as lines:
            # The turn of the loop in which it arrives begins when its time is up.
            loop.call_soon(be_late)
            began_s = loop.time()
            if taken is not None:
                assert await lines.take() == taken
                return
            with pytest.raises(Refusal, match="no line arrived"):
                await lines.take()
            # A line, though a blank one, gives the next one its whole time.
            assert (loop.time() - began_s > 0.14) == (b"\n" in arrives)

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SkippingLoop)
        runner.run(work(loop))


async def test_a_line_that_trickles_does_not_break_silence() -> None:
    async with reading(Slow([b"a"] * 1_000), patience_s=0.1) as lines:
        with pytest.raises(Refusal, match=r"no line arrived for 0.1 s"):
            await lines.take()


class Ended(Exception):
    """What a test ends lines with."""


async def test_lines_that_are_ended_give_no_more_of_what_has_come() -> None:
    async with reading(Slow([b"a\n", b"b\n"], ends=False)) as lines:
        assert await lines.take() == [b"a"]
        while not lines.held_bytes:  # noqa: ASYNC110 -- there is no event for it
            await asyncio.sleep(0.01)
        lines.end(Ended())
        with pytest.raises(Ended):
            await lines.take()


async def test_who_waits_for_lines_hears_that_they_are_ended() -> None:
    async with reading(Body([], ends=False)) as lines:
        taking = asyncio.create_task(lines.take())
        await asyncio.sleep(0.01)
        lines.end(Ended())
        with pytest.raises(Ended):
            await taking


async def test_the_last_lines_of_a_body_are_given_though_lines_are_ended() -> None:
    async with reading(Body([b"a\n" * 1_500 + b"b"])) as lines:
        assert len(await lines.take()) == 1_000
        await asyncio.sleep(0.01)
        assert lines.ended
        lines.end(Ended())
        assert await lines.take() == [b"a"] * 500 + [b"b"]
        assert await lines.take() == []


async def test_whoever_was_not_listened_to_was_not_silent() -> None:
    async with reading(Body([b"a\n"], ends=False), patience_s=0.1) as lines:
        await asyncio.sleep(0.2)
        assert await lines.take() == [b"a"]
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(Refusal, match="no line arrived"):
            await lines.take()
        assert asyncio.get_running_loop().time() - began_s > 0.09


async def test_whoever_goes_is_noticed_and_what_is_given_up_is_read_past() -> None:
    lines = NdjsonReader(Body([b"a\n"], goes=True), LINE_BYTES, 1, _memory(100_000_000))
    with pytest.raises(CallerGone):
        await lines.read()
    lines = NdjsonReader(Body([b"a\n" * 5_000] * 50, goes=True), LINE_BYTES, 1, _memory(100_000_000))
    task = asyncio.create_task(lines.read())
    await asyncio.sleep(0.01)
    assert not task.done()
    lines.give_up()
    with pytest.raises(CallerGone):
        await task
    assert lines.held_bytes == 0
    with pytest.raises(Refusal, match="no result was read"):
        await lines.take()


async def test_memory_is_charged_for_what_is_held_as_long_as_it_is() -> None:
    memory = _memory(1_000_000)

    def are_held(lines: NdjsonReader, bytes_: int) -> bool:
        return lines.held_bytes == memory.held_bytes == bytes_

    async with reading(Body([b"abc\n", b"defg\nhi", b"j"], ends=False), memory=memory) as lines:
        assert are_held(lines, 0)
        await asyncio.sleep(0.01)
        assert are_held(lines, 10)
        await lines.take()
        assert are_held(lines, 3)
        lines.give_up()
        assert are_held(lines, 0)
    async with reading(Body([b"x\n" * 1_500 + b"y"], ends=False), memory=memory) as lines:
        await asyncio.sleep(0.01)
        assert are_held(lines, 2_001)
        await lines.take()
        assert are_held(lines, 501)
        lines.give_up()
    async with reading(Body([b"a\n"], ends=False), memory=memory) as lines:
        await asyncio.sleep(0.01)
        await lines.take()
        assert are_held(lines, 0)
    async with reading(Body([b" ", b"\n"], ends=False), memory=memory) as lines:
        await asyncio.sleep(0.01)
        assert are_held(lines, 0)


def is_lost(lines: NdjsonReader) -> bool:
    """Return whether what was held is dropped."""
    try:
        lines.check()
    except Refusal:
        return True
    return False


async def test_lines_for_which_there_is_no_memory_are_lost() -> None:
    async with reading(Body([b"a\n" + b"x" * 2_000]), memory=_memory(4_000)) as lines:
        await asyncio.sleep(0.01)
        assert (is_lost(lines), lines.held_bytes) == (True, 0)
        with pytest.raises(Refusal) as caught:
            await lines.take()
        assert caught.value.code == 1401


class Memory:
    """A memory of 40 000 bytes for small bodies, its clock, and a body that asks for most of them."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.memory = BodyMemory(160_000, MemoryBudget(1 << 30), lambda: self.now_s)

    def has_room_for_another(self) -> bool:
        other = self.memory.reserve(None, lambda _: None)
        try:
            other.hold(39_000)
        except Refusal:
            return False
        other.release()
        return True


@pytest.mark.parametrize(("body", "loses"), [(b"x" * 4_000, True), (b"x\n" * 2_500, False)])
async def test_only_who_is_listened_to_can_lose_memory_by_silence(body: bytes, loses: bool) -> None:
    world = Memory()
    async with reading(Body([body], ends=False), memory=world.memory) as lines:
        assert not is_lost(lines)
        await asyncio.sleep(0.01)
        world.now_s += 2
        assert world.has_room_for_another() is loses
        assert is_lost(lines) is loses
        if loses:
            assert lines.held_bytes == 0
            with pytest.raises(Refusal, match="no memory for the body"):
                await lines.take()


async def test_who_holds_nothing_loses_nothing() -> None:
    world = Memory()
    async with reading(Body([b" ", b"\n"], ends=False), memory=world.memory) as lines:
        await asyncio.sleep(0.01)
        world.now_s += 2
        world.memory.reserve(None, lambda _: None).hold(40_000)
        assert not world.has_room_for_another()
        assert not is_lost(lines)


async def test_lines_that_are_taken_make_the_rest_young_again() -> None:
    world = Memory()
    async with reading(Body([b"x\n" * 2_500], ends=False), memory=world.memory) as lines:
        await asyncio.sleep(0.01)
        world.now_s += 20
        assert len(await lines.take()) == LINES_MAX
        assert not world.has_room_for_another()
        assert not is_lost(lines)


async def test_who_waits_for_lines_hears_that_they_are_given_up() -> None:
    async with reading(Body([], ends=False)) as lines:
        taking = asyncio.create_task(lines.take())
        await asyncio.sleep(0.01)
        lines.give_up()
        with pytest.raises(Refusal, match="no result was read for 5 s"):
            await taking


async def test_a_message_without_more_is_the_last() -> None:
    messages = iter([{"type": "http.request", "body": b"a"}])
    memory = _memory(1_000)
    lines = NdjsonReader(lambda: asyncio.sleep(0, next(messages)), 10, 5, memory)
    reading_all = asyncio.create_task(lines.read())
    assert (await lines.take(), await lines.take()) == ([b"a"], [])
    assert 4 < lines.patience_left_s <= 5
    reading_all.cancel()
