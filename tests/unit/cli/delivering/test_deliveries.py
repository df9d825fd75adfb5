"""Each firing is delivered at least once and in order, whatever fails, and no feed waits for another."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from rule_detector_client import ServiceError
from tests.unit.cli.delivering.feeds import Feeds, Receiver, Reset
from tests.unit.cli.delivering.runs import OK, Run

pytestmark = pytest.mark.skipping_clock


async def test_it_begins_at_the_newest_and_goes_on_where_it_ended(run: Run) -> None:
    one = run.feeds.detector("logins", before=3)
    async with run.running() as task:
        await run.until(run.places, task)
        run.feeds.fire(one, 2)
        await run.until(lambda: len(run.receiver.taken) == 2, task)
    assert run.places() == {one: 5}
    run.feeds.fire(one, 3)
    async with run.running() as task:
        await run.until(lambda: len(run.receiver.taken) == 5, task)
    assert run.receiver.seqs(one) == [4, 5, 6, 7, 8]
    assert run.said == []


async def test_a_place_is_kept_before_anything_fires(run: Run) -> None:
    one = run.feeds.detector("logins", before=3)
    async with run.running() as task:
        await run.until(run.places, task)
    run.feeds.fire(one)
    async with run.running() as task:
        await run.until(lambda: run.receiver.taken, task)
    assert run.receiver.seqs(one) == [4]


def fails_half_the_time(draw: random.Random) -> Callable[[Any], Any]:
    """Answers as a bad server does: refuses for now, resets, is slow, takes what it then denies."""

    async def slow() -> httpx.Response:
        await asyncio.sleep(draw.choice([1, 100]))
        return OK

    def answer(_body: Any) -> Awaitable[httpx.Response] | httpx.Response:
        match draw.randrange(10):
            case 0:
                return httpx.Response(429, headers={"Retry-After": "3"})
            case 1:
                return slow()
            case 2 | 3:
                raise Reset
            case 4:
                return httpx.Response(draw.choice([500, 502, 503, 408, 425]))
        return OK

    return answer


def check_taken(run: Run, detectors: list[str]) -> None:
    """Each firing was taken, and none before the one before it."""
    for one in detectors:
        highest = 0
        for seq in run.receiver.seqs(one):
            assert seq <= highest + 1
            highest = max(seq, highest)
        assert highest == len(run.feeds.firings[one])


async def test_nothing_is_lost_and_order_is_kept_if_both_ends_fail_and_it_dies_anywhere(
    run: Run, examples: Callable[..., Iterator[random.Random]]
) -> None:
    for number, draw in enumerate(examples(100)):
        run.folder = run.folder / str(number)
        run.folder.mkdir()
        run.feeds, run.receiver = Feeds(), Receiver(fails_half_the_time(draw))
        run.feeds.failing = lambda draw=draw: draw.random() < 0.05
        detectors = [run.feeds.detector(name) for name in "abc"]
        for _ in range(6):
            async with run.running(crash=draw.random() < 0.7) as task:
                await run.until(lambda: len(run.places()) == 3, task)
                for _ in range(draw.randrange(1, 20)):
                    run.feeds.fire(draw.choice(detectors))
                    await asyncio.sleep(draw.random() * 3)
        async with run.running() as task:
            await run.until(
                lambda: all(run.places()[one] == len(run.feeds.firings[one]) for one in detectors), task
            )
        check_taken(run, detectors)


async def test_a_target_that_fails_for_one_detector_does_not_hold_up_others(run: Run) -> None:
    never = asyncio.Event()

    async def hang() -> httpx.Response:
        await never.wait()
        raise AssertionError

    one, slow, other = map(run.feeds.detector, ("fails", "hangs", "other"))
    run.receiver.answer = lambda body: (
        httpx.Response(500) if body["detectorId"] == one else hang() if body["detectorId"] == slow else OK
    )
    async with run.running() as task:
        await run.until(lambda: len(run.places()) == 3, task)
        for detector in (one, slow, other):
            run.feeds.fire(detector, 20)
        await run.until(lambda: run.receiver.seqs(other) == [*range(1, 21)], task)
        assert (run.figure("waiting", one), run.figure("waiting", other)) == (1, 0)
    assert run.places() == {one: 0, slow: 0, other: 20}


async def test_a_gap_is_told_and_counted(run: Run) -> None:
    one = run.feeds.detector("logins")
    async with run.following(one):
        pass
    run.feeds.kept = 4
    run.feeds.fire(one, 10)
    async with run.running() as task:
        await run.until(lambda: len(run.receiver.taken) == 4, task)
    assert run.receiver.seqs(one) == [7, 8, 9, 10]
    assert run.said == ["logins: the firings 1 to 6 are lost: the service no longer keeps them"]
    assert run.figure("lost_total", one) == 6


async def test_new_detectors_are_followed_from_their_beginning_also_over_a_restart(run: Run) -> None:
    old = run.feeds.detector("old", before=2)
    async with run.following(old, at=2) as task:
        new = run.feeds.detector("new", before=2)
        await run.until(lambda: len(run.receiver.taken) == 2, task)
    newer = run.feeds.detector("newer", before=3)
    async with run.running() as task:
        await run.until(lambda: len(run.receiver.taken) == 5, task)
    assert (run.receiver.seqs(new), run.receiver.seqs(newer)) == ([1, 2], [1, 2, 3])


async def test_the_first_detector_is_new_also_after_a_crash_before_anything_else(run: Run) -> None:
    async with run.running(crash=True) as task:
        await run.until((run.folder / "state").exists, task)
    new = run.feeds.detector("new", before=3)
    async with run.running() as task:
        await run.until(lambda: run.receiver.seqs(new) == [1, 2, 3], task)


@pytest.mark.parametrize("crash", [False, True])
async def test_a_detector_that_was_there_at_the_start_is_never_new(run: Run, *, crash: bool) -> None:
    there, away = run.feeds.detector("there"), run.feeds.detector("away", before=3)
    run.feeds.away.add(away)
    async with run.running(crash=crash) as task:
        await run.until(lambda: run.places() == {there: 0}, task)
        await run.until(lambda: run.said, task)
    assert run.said == ["away: it is not known yet what fired last: 1501 the detector is starting"]
    run.feeds.away.clear()
    async with run.running() as task:
        await run.until(lambda: run.places() == {there: 0, away: 3}, task)
        new = run.feeds.detector("new", before=2)
        await run.until(lambda: run.receiver.seqs(new) == [1, 2], task)
    assert run.receiver.seqs(away) == []


async def test_it_tells_that_it_has_begun_once_all_places_are_kept(run: Run) -> None:
    one, away = run.feeds.detector("one", before=3), run.feeds.detector("away", before=1)
    run.feeds.away.add(away)
    seen: list[dict[str, int]] = []
    deliveries = run.deliveries()
    deliveries.begun = lambda: seen.append(run.places())
    stop = asyncio.Event()
    task = asyncio.create_task(deliveries.run(stop))
    await run.until(lambda: run.places() == {one: 3}, task)
    await asyncio.sleep(100)
    assert seen == []
    run.feeds.away.clear()
    await run.until(lambda: seen, task)
    stop.set()
    await task
    assert seen == [{one: 3, away: 1}]


async def test_a_detector_that_is_restored_after_it_was_deleted_is_followed_again(run: Run) -> None:
    one = run.feeds.detector("one", before=2)
    async with run.following(one, at=2) as task:
        firings = run.feeds.firings[one]
        run.feeds.delete(one)
        await run.until(lambda: run.places() == {}, task)
        run.feeds.names[one], run.feeds.firings[one] = "one", firings
        await run.until(lambda: run.receiver.seqs(one) == [1, 2], task)


async def test_only_named_detectors_are_followed_and_one_that_is_named_later_from_the_newest(
    run: Run,
) -> None:
    one, other = run.feeds.detector("one"), run.feeds.detector("other", before=3)
    run.names = ["one"]
    async with run.following(one) as task:
        run.feeds.fire(other)
        run.feeds.fire(one)
        await run.until(lambda: run.receiver.taken, task)
        await asyncio.sleep(100)
    run.names = ["one", other]
    async with run.running() as task:
        await run.until(lambda: len(run.places()) == 2, task)
    assert run.places() == {one: 1, other: 4}
    assert run.receiver.seqs(other) == []


async def test_a_deleted_detector_is_forgotten_and_the_last_one_ends_it(run: Run) -> None:
    one, other = run.feeds.detector("one"), run.feeds.detector("other")
    run.names = ["one", "other"]

    async def deliver() -> None:
        async with run.running() as task:
            await run.until(lambda: len(run.places()) == 2, task)
            run.feeds.delete(one)
            await run.until(lambda: run.places() == {other: 0}, task)
            assert run.said == [f"one: the detector {one} was deleted"]
            run.feeds.delete(other)
            await run.until(lambda: False, task)

    with pytest.raises(ServiceError, match="all detectors to deliver from were deleted"):
        await deliver()


async def test_a_revoked_token_ends_it_and_what_was_delivered_is_kept(run: Run) -> None:
    one = run.feeds.detector("one")

    async def deliver() -> None:
        async with run.following(one) as task:
            run.feeds.fire(one, 2)
            await run.until(lambda: len(run.receiver.taken) == 2, task)
            run.feeds.revoked = True
            await run.until(lambda: False, task)

    with pytest.raises(ServiceError, match="1101"):
        await deliver()
    assert run.places() == {one: 2}


async def test_after_a_restored_backup_it_goes_on_with_the_newest(run: Run) -> None:
    one = run.feeds.detector("one", before=5)
    async with run.following(one, at=5) as task:
        del run.feeds.firings[one][3:]
        run.feeds.failing = lambda: True
        await asyncio.sleep(30)
        run.feeds.failing = lambda: False
        await run.until(lambda: run.places() == {one: 3}, task)
        run.feeds.fire(one)
        await run.until(lambda: run.receiver.taken, task)
    assert run.receiver.seqs(one) == [4]
    assert "it goes on with the newest" in run.said[0]


async def test_a_service_that_is_away_is_waited_for(run: Run) -> None:
    one = run.feeds.detector("one")
    async with run.following(one) as task:
        run.feeds.failing = lambda: True
        await asyncio.sleep(300)
        run.feeds.fire(one, 3)
        run.feeds.failing = lambda: False
        await run.until(lambda: len(run.receiver.taken) == 3, task)
    assert run.receiver.seqs(one) == [1, 2, 3]
    assert run.figure("feed_breaks_total", one) > 5


@pytest.mark.parametrize("takes_s", [1.0, 100.0])
async def test_at_the_end_what_is_under_way_is_finished_or_given_up(run: Run, takes_s: float) -> None:
    async def slow() -> httpx.Response:
        await asyncio.sleep(takes_s)
        return OK

    run.receiver.answer = lambda _body: slow()
    run.timeout_s = 1_000.0
    one = run.feeds.detector("one")
    async with run.following(one) as task:
        run.feeds.fire(one, 3)
        await run.until(lambda: run.receiver.requests, task)
    finished = takes_s < 5
    assert (len(run.receiver.requests), run.receiver.seqs(one)) == (1, [1] * finished)
    assert run.places() == {one: finished}


async def test_a_disk_that_fails_ends_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    one = run.feeds.detector("one")
    deliveries = run.deliveries()
    task = asyncio.create_task(deliveries.run(asyncio.Event()))

    def fails() -> bool:
        # A save may be under way in another thread.
        with suppress(FileExistsError):
            (run.folder / "state.new").mkdir()
        return (run.folder / "state.new").is_dir()

    await run.until(lambda: run.places() == {one: 0} and fails(), task)
    run.feeds.fire(one)
    with pytest.raises(IsADirectoryError):
        await task
