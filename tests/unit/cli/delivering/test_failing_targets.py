"""What a target does not take: when it is sent again, when it is a dead letter, and what is told."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import msgspec
import pytest

from tests.unit.cli.delivering.feeds import Reset
from tests.unit.cli.delivering.runs import OK, Run

pytestmark = pytest.mark.skipping_clock


@pytest.mark.parametrize("by", ["seconds", "date"])
async def test_a_target_is_left_alone_as_long_as_it_asks(run: Run, by: str) -> None:
    in_an_hour = datetime.now(UTC) + timedelta(seconds=700)
    header = "600" if by == "seconds" else format_datetime(in_an_hour, usegmt=True)
    times_s: list[float] = []

    def answer(_body: Any) -> httpx.Response:
        times_s.append(asyncio.get_running_loop().time())
        return httpx.Response(429, headers={"Retry-After": header}) if len(times_s) == 1 else OK

    run.receiver.answer = answer
    one = run.feeds.detector("logins")
    async with run.following(one) as task:
        run.feeds.fire(one)
        await run.until(lambda: run.receiver.taken, task)
    assert 600 <= times_s[1] - times_s[0] < 800


@pytest.mark.parametrize(
    "header", ["nan", "-5", "soon", "1e999", "Mon, 1 Jan 99999999999999999999 0:0:0 GMT"]
)
async def test_a_retry_after_that_says_nothing_sensible_is_survived(run: Run, header: str) -> None:
    asked = httpx.Response(503, headers={"Retry-After": header})
    run.receiver.answer = lambda _body: OK if len(run.receiver.requests) > 1 else asked
    one = run.feeds.detector("logins")
    async with run.following(one) as task:
        run.feeds.fire(one)
        await run.until(lambda: run.receiver.taken, task)


async def test_waits_double_up_to_a_minute_and_differ(run: Run) -> None:
    times_s: list[float] = []

    def answer(_body: Any) -> httpx.Response:
        times_s.append(asyncio.get_running_loop().time())
        return OK if len(times_s) == 15 else httpx.Response(500)

    run.receiver.answer = answer
    one = run.feeds.detector("logins")
    async with run.following(one) as task:
        run.feeds.fire(one)
        await run.until(lambda: run.receiver.taken, task)
    waits = [after - before for before, after in itertools.pairwise(times_s)]
    for number, wait in enumerate(waits):
        longest_s = min(2**number, 60)
        assert longest_s / 2 <= wait < longest_s + 1
    assert len({round(wait, 3) for wait in waits[-6:]}) > 3
    refused, taken = run.said
    assert refused == "logins: the firing 1 is not delivered yet: https://hooks.example: it answered 500"
    assert taken == "logins: the firing 1 is delivered, by attempt 15"


FINAL = [301, 400, 401, 404, 410, 422]


@pytest.mark.parametrize("status", FINAL)
async def test_what_is_refused_for_good_is_a_dead_letter_after_its_attempts(run: Run, status: int) -> None:
    run.receiver.answer = lambda body: OK if body["seq"] != 2 else httpx.Response(status)
    run.dead_after = 3
    one = run.feeds.detector("logins")
    async with run.following(one) as task:
        run.feeds.fire(one, 3)
        await run.until(lambda: len(run.receiver.taken) == 2, task)
    assert [msgspec.json.decode(each.content)["seq"] for each in run.receiver.requests] == [1, 2, 2, 2, 3]
    [letter] = map(msgspec.json.decode, (run.folder / "dead").read_bytes().splitlines())
    redirected = ", a redirection, and none is followed: give the address where it leads"
    assert letter["reason"] == f"it answered {status}" + redirected * (status == 301)
    assert (letter["firing"]["seq"], letter["firing"]["detector"]) == (2, "logins")
    assert run.figure("dead_letters_total", one) == 1
    assert run.figure("delivered_total", one) == 2
    assert "secret" not in "".join(run.said)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"invalid_payload", ": invalid_payload"),
        (b'{"errors":\n ["\x1b[31mno rule\xff"]}', ': {"errors": ["[31mno rule"]}'),
        ("ä".encode() * 1_000, f": {'ä' * 199}…"),
        (b"<html><title>400 Bad Request</title>", ""),
        (b"Cannot POST /secret", ""),
        (b"signing-key is unknown", ""),
        (b"who is pass word?", ""),
        (b" \x1b", ""),
    ],
)
async def test_what_a_target_says_of_a_refusal_is_told_without_secrets(
    run: Run, answer: bytes, told: str
) -> None:
    run.receiver.answer = lambda _body: httpx.Response(400, content=answer)
    run.dead_after = 2
    one = run.feeds.detector("logins")
    async with run.following(one) as task:
        run.feeds.fire(one)
        await run.until(lambda: run.places() == {one: 1}, task)
    [letter] = map(msgspec.json.decode, (run.folder / "dead").read_bytes().splitlines())
    assert letter["reason"] == f"it answered 400{told}"
    at = "https://hooks.example: it answered 400"
    assert run.said == [
        f"logins: the firing 1 is not delivered yet: {at}{told}",
        f"logins: the firing 1 is a dead letter: {at}{told}",
    ]


async def test_only_refusals_count_towards_a_dead_letter(run: Run) -> None:
    answers = [*[httpx.Response(502)] * 5, httpx.Response(404), Reset(), httpx.Response(404), OK]

    def answer(_body: Any) -> httpx.Response:
        if isinstance(given := answers[len(run.receiver.requests) - 1], Reset):
            raise given
        return given

    run.receiver.answer = answer
    run.dead_after = 3
    one = run.feeds.detector("logins")
    async with run.following(one) as task:
        run.feeds.fire(one)
        await run.until(lambda: run.places() == {one: 1}, task)
    assert run.receiver.seqs(one) == [1]
    assert (run.folder / "dead").read_bytes() == b""


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503, 410])
async def test_what_may_pass_and_all_without_a_file_for_dead_letters_is_tried_on(
    run: Run, status: int
) -> None:
    run.dead_after = 0 if status == 410 else 1
    run.receiver.answer = lambda _body: OK if len(run.receiver.requests) > 20 else httpx.Response(status)
    one = run.feeds.detector("logins")
    async with run.following(one) as task:
        run.feeds.fire(one)
        await run.until(lambda: run.receiver.taken, task)
    assert run.figure("failed_attempts_total", one) == 20


async def test_a_slow_target_is_tried_again(run: Run) -> None:
    async def hang() -> httpx.Response:
        await asyncio.sleep(1_000)
        return OK

    run.receiver.answer = lambda _body: OK if len(run.receiver.requests) > 1 else hang()
    one = run.feeds.detector("logins")
    async with run.following(one) as task:
        run.feeds.fire(one)
        await run.until(lambda: run.receiver.taken, task)
    assert "it did not answer in time" in run.said[0]
