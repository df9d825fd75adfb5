"""Streams of events over real sockets: each line is answered as it comes, and in order."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

from api.http.app import Application
from api.settings import Settings
from engine.evaluation.wire.events import Answer, Done
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.http.ndjson.streams import PATH, good
from tests.api.scripted import TOKEN, ScriptedBackend
from tests.api.streaming import NDJSON, Streaming, line, stream
from tests.api.wire import Wire, request, served
from tests.local_runtime.service import local_service


async def test_each_line_is_answered_while_others_are_still_to_come(caller: Caller, real: Wire) -> None:
    detector = await caller.detector()
    await caller.rule(detector, "once a == 1 and user in $list")
    one = await stream(real, detector, BOOTSTRAP)
    begun = await one.begun()
    assert (begun.status, begun.headers["content-type"]) == (200, "application/x-ndjson")
    await one.send(line(0, {"vars": {"list": ["ada"]}}, a=1, user="ada"))
    assert [action["name"] for action in (await one.next())["actions"]] == ["r"]
    # The context is that of the line alone, and half a line is none.
    await one.send(line(1, user="ada") + line(2, {"vars": {"list": ["ada"]}}, user="ada")[:10])
    assert await one.next() == {"actions": []}
    await one.send(line(2, {"vars": {"list": ["ada"]}}, user="ada")[10:-1])
    await one.end()
    assert len((await one.next())["actions"]) == 1
    assert await one.rest() == [{"done": 3}]
    assert await good(one)


async def test_a_bad_line_is_answered_in_its_place_and_the_others_go_on(caller: Caller, real: Wire) -> None:
    detector = await caller.detector()
    await caller.rule(detector, "a == 1")
    one = await stream(real, detector, BOOTSTRAP)
    await one.begun()
    bad = [
        b"{\n", b"\xff\n", b'{"event":{"fields":{"a":NaN},"timestamp_ms":0}}\n',
        line(0) + line(0)[:-2] + b"\n",
        b'{"event":{"fields":{"a":' + b"[" * 70 + b"]" * 70 + b'},"timestamp_ms":0}}\n',
    ]  # fmt: skip
    shapes = [b"[]\n", b'{"event":5,"z":1}\n', line(9e15)]
    sent = [
        line(0, a=1), *bad[:3], line(0, a=1), b"\n \r\n", bad[4], *shapes, line(-1e15),
        line(1, long="x" * 30_000), line(-1, a=1),
    ]  # fmt: skip
    await one.send(b"".join(sent))
    await one.end()
    *results, closing = await one.rest()
    assert closing == {"done": 12}
    codes = [[entry["code"] for entry in result.get("errors", [])] for result in results]
    assert codes == [[], [1000], [1000], [1000], [], [1000], [1001], [1001] * 2, [1001], [1402], [1003], []]
    assert [len(result["actions"]) for result in results] == [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    assert [entry["code"] for entry in results[-1]["messages"]] == [2001]
    assert results[7]["errors"][0]["message"] == "event: expected an object, got a number"
    messages = [results[number]["errors"][0]["message"].split(": ")[0] for number in (1, 3, 6)]
    assert messages == ["the line is not JSON", "the line is not JSON", "line"]


async def test_a_stream_whose_lines_are_all_too_long_is_answered(caller: Caller, real: Wire) -> None:
    one = await stream(real, await caller.detector(), BOOTSTRAP)
    await one.begun()
    await one.send(2 * line(1, long="x" * 30_000))
    await one.end()
    *results, closing = await one.rest()
    assert closing == {"done": 2}
    assert [entry["code"] for result in results for entry in result["errors"]] == [1003, 1003]


async def test_lines_past_the_bound_on_an_answer_are_evaluated_in_pieces(
    tmp_path: Path, settings: Settings
) -> None:
    """Nothing of a stream is lost, and each line is evaluated once."""
    count = 300
    sent = [line(number, a=number % 3) for number in range(count)]
    sent[7] = line(1, long="x" * 30_000)
    sent[50] = b"{\n"
    sent[-1] = line(1, long="x" * 30_000)
    told: list[list[Any]] = []
    asked: list[list[int]] = []
    for answer_bytes_max in (1_000, 1 << 20):
        limits = dataclasses.replace(settings.limits(), answer_bytes_max=answer_bytes_max)
        async with local_service(tmp_path / str(answer_bytes_max), limits=limits) as bounded:
            app = Application(settings, bounded.backend)
            caller = Caller(app, BOOTSTRAP)
            detector = await caller.detector()
            for _ in range(3):
                await caller.rule(detector, "once a == 1")
            real = bounded.backend.call
            sizes: list[int] = []

            async def counted(*call: Any, real: Any = real, sizes: list[int] = sizes) -> Answer:
                answer: Answer = await real(*call)
                sizes.append(len(answer.result) if isinstance(answer, Done) else 0)
                return answer

            bounded.backend.call = counted  # type: ignore[method-assign]
            async with served(app, settings) as wire:
                one = await stream(wire, detector, BOOTSTRAP)
                await one.send(b"".join(sent))
                await one.end()
                await one.begun()
                told.append(await one.rest())
            asked.append(sizes)
    narrow, roomy = told
    assert roomy[-1] == {"done": count}
    codes = [[entry["code"] for entry in result.get("errors", [])] for result in roomy[:-1]]
    assert [place for place, each in enumerate(codes) if each] == [7, 50, count - 1]
    assert [len(result["actions"]) for result in roomy[:3]] == [0, 3, 3]

    def nameless(results: list[Any]) -> list[Any]:
        return [[len(result.get("actions", [])), result.get("errors")] for result in results]

    assert nameless(narrow) == nameless(roomy)
    assert narrow[-1] == roomy[-1]
    assert len(asked[0]) > 50 > len(asked[1])
    assert max(asked[0]) < 1_500 < max(asked[1])


async def test_a_body_of_known_length_is_a_stream_too_however_large(
    wire: Wire, echo: ScriptedBackend
) -> None:
    body = line(0, a="z" * 1_000) * 3_000
    connection = await wire.connect()
    one = Streaming(connection)
    sending = asyncio.create_task(
        connection.send(request(path=PATH, body=body, token=TOKEN, headers=(NDJSON,)))
    )
    assert (await one.begun()).status == 200
    assert (await one.rest())[-1] == {"done": 3_000}
    await sending
    assert await good(one)


async def test_many_streams_at_once_are_each_answered_in_order(
    caller: Caller, settings: Settings, real: Wire
) -> None:
    assert settings.max_batch_events == 10
    detectors = [await caller.detector() for _ in range(3)]
    for detector in detectors:
        await caller.rule(detector, "per k once first == true")

    async def run(number: int) -> None:
        one = await stream(real, detectors[number % 3], BOOTSTRAP)
        await one.begun()
        for count in range(50):
            await one.send(line(0, k=number, first=count == 20, n=count))
        await one.end()
        *results, closing = await one.rest()
        assert closing == {"done": 50}
        assert [len(result["actions"]) for result in results] == [0] * 20 + [1] * 30

    await asyncio.gather(*(run(number) for number in range(9)))
