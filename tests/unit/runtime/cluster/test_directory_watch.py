"""A directory that gives no sign of life: how soon a service takes it for lost."""

import asyncio
from typing import Any

import pytest

from engine.runtime.cluster.directory_reach import DirectoryWatch
from engine.runtime.contract.errors import ActorDied
from tests.skipping_clock import SkippingLoop

pytestmark = pytest.mark.skipping_clock

TIMEOUT_S = 3.0
HUNG_S = 60.0
INTERVAL_S = TIMEOUT_S / 12
"""The time between two pings: the timeout begins no later than that after the last answer."""


class Connection:
    """A connection to a directory that answers until it falls silent or dies, on the clock of its loop."""

    def __init__(
        self,
        *,
        silent_after_s: float = 1e9,
        hangs_after_s: float = 1e9,
        dead_after_s: float = 1e9,
        delay_s: float = 0.0,
        holds_up_s: float = 0.0,
    ) -> None:
        self._silent_s = now_s() + silent_after_s
        self._dead_s = now_s() + dead_after_s
        self._hangs_s = now_s() + hangs_after_s
        self._delay_s = delay_s
        self._holds_up_s = holds_up_s

    async def ask_until_answered(self, method: str, kind: type) -> Any:
        assert method in {"beat", "turn"}
        assert kind is int
        await asyncio.sleep(self._delay_s)
        if self._holds_up_s:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SkippingLoop)
            loop.clock.now_s += self._holds_up_s
            # The answer has come, but timers are due before it is read.
            for _ in range(4):
                await asyncio.sleep(0)
        if now_s() >= self._dead_s:
            raise ActorDied("it died")
        if now_s() >= self._silent_s or (method == "turn" and now_s() >= self._hangs_s):
            await asyncio.Event().wait()
        return 0


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def lost(watch: DirectoryWatch, **connection: float) -> tuple[float | None, float]:
    """How long the directory was silent by the watch's account, and when that was noticed."""
    began_s = now_s()
    silent_s = await watch.until_lost(Connection(**connection), lambda: None)  # type: ignore[arg-type]
    return silent_s, now_s() - began_s


async def prepared(**connection: float) -> list[float]:
    """When the next directory was prepared, until the directory counted as lost."""
    began_s = now_s()
    prepared_s: list[float] = []
    watched = DirectoryWatch(TIMEOUT_S, HUNG_S).until_lost(
        Connection(**connection),  # type: ignore[arg-type]
        lambda: prepared_s.append(now_s() - began_s),
    )
    await watched
    return prepared_s


async def test_the_timeout_begins_soon_after_the_last_answer():
    for silent_after_s in (0.0, 0.1, 0.3, 10.0, 100.3):
        silent_s, noticed_s = await lost(DirectoryWatch(TIMEOUT_S, HUNG_S), silent_after_s=silent_after_s)
        assert silent_s == TIMEOUT_S
        assert TIMEOUT_S <= noticed_s - silent_after_s <= TIMEOUT_S + INTERVAL_S + 0.05


async def test_one_that_answers_late_is_not_lost():
    async with asyncio.timeout(1000):
        assert await lost(DirectoryWatch(TIMEOUT_S, HUNG_S), delay_s=TIMEOUT_S - 0.1, dead_after_s=500) == (
            None,
            pytest.approx(500, abs=TIMEOUT_S + INTERVAL_S),
        )


async def test_the_next_one_is_prepared_once_a_third_of_the_timeout_has_passed_without_an_answer():
    for silent_after_s in (0.0, 10.0):
        (at_s,) = await prepared(silent_after_s=silent_after_s)
        assert TIMEOUT_S / 3 <= at_s - silent_after_s <= TIMEOUT_S / 3 + INTERVAL_S + 0.05
    assert await prepared(delay_s=TIMEOUT_S / 3 - 0.1, dead_after_s=500) == []
    # Each late answer is a new suspicion.
    assert len(await prepared(delay_s=TIMEOUT_S / 3 + 0.1, dead_after_s=3.5)) == 3


async def test_one_after_the_other_that_is_silent_gets_more_time_until_one_has_answered_for_a_while():
    watch = DirectoryWatch(TIMEOUT_S, HUNG_S)
    silent = [(await lost(watch, silent_after_s=0))[0] for _ in range(5)]
    assert silent == [TIMEOUT_S * factor for factor in (1, 2, 4, 8, 8)]
    assert (await lost(watch, silent_after_s=20))[0] == 8 * TIMEOUT_S
    assert (await lost(watch, silent_after_s=25))[0] == TIMEOUT_S


async def test_one_whose_loop_hangs_is_lost_later_though_its_process_answers():
    silent_s, noticed_s = await lost(DirectoryWatch(TIMEOUT_S, HUNG_S), hangs_after_s=100)
    assert silent_s == HUNG_S
    assert HUNG_S <= noticed_s - 100 <= 1.3 * HUNG_S


async def test_time_in_which_the_watch_was_held_up_is_no_silence():
    watch = DirectoryWatch(TIMEOUT_S, HUNG_S)
    assert await lost(watch, holds_up_s=10 * HUNG_S, dead_after_s=1e5) == (None, pytest.approx(1e5, rel=0.02))
    assert (await lost(watch, silent_after_s=10))[0] == TIMEOUT_S


async def test_a_watch_that_nobody_needs_ends():
    left = 5

    def needed() -> bool:
        nonlocal left
        left -= 1
        return left > 0

    watched = DirectoryWatch(TIMEOUT_S, HUNG_S).until_lost(
        Connection(),  # type: ignore[arg-type]
        lambda: None,
        needed,
    )
    assert await watched is None


async def test_the_end_of_the_connection_is_no_silence():
    assert (await lost(DirectoryWatch(TIMEOUT_S, HUNG_S), dead_after_s=10))[0] is None
