"""Calls over a connection that ends, or that cannot be made."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.runtime.contract.errors import ActorDied, DetectorUnavailable
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.scheduler_client import SchedulerClient, Unreachable
from snapshots.errors import StorageError

pytestmark = pytest.mark.skipping_clock

DEADLINE_S = 30.0


class SchedulerProcess:
    """A scheduler's process: what connecting and calls to it do, one after another; the last one for ever."""

    def __init__(self, folder: Path) -> None:
        self.connects: list[Exception | None] = [None]
        self.answers: list[Exception | int] = [1]
        self.takes_s = 0.0
        self.attempts = 0
        self.lost = 0
        settings = RuntimeSettings(data=folder, deadline_s=DEADLINE_S)
        self.connection = SchedulerClient(settings, self._connect, lost=self._lose)

    async def _connect(self) -> Any:
        self.attempts += 1
        await asyncio.sleep(0.01)
        self._next(self.connects)
        client = SimpleNamespace(link=SimpleNamespace(usable=True))

        async def ask(*_: object) -> int:
            await asyncio.sleep(self.takes_s)
            try:
                return self._next(self.answers)
            except ActorDied:
                client.link.usable = False
                client.ended()
                raise

        client.ask, client.close = ask, lambda: None
        return client

    def _lose(self) -> None:
        self.lost += 1

    @staticmethod
    def _next(outcomes: list[Any]) -> Any:
        outcome = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
async def scheduler(tmp_path: Path):
    scheduler = SchedulerProcess(tmp_path)
    yield scheduler
    await scheduler.connection.close()


async def test_callers_share_one_connection(scheduler: SchedulerProcess) -> None:
    assert await asyncio.gather(*(scheduler.connection.ask("changes", int) for _ in range(3))) == [1] * 3
    assert scheduler.attempts == 1


async def test_a_call_during_which_the_connection_ends_is_made_again(scheduler: SchedulerProcess) -> None:
    scheduler.answers = [ActorDied("it ended"), 2]
    scheduler.connects = [None, OSError("not yet"), None]
    assert await scheduler.connection.ask("create_detector", int) == 2
    assert (scheduler.attempts, scheduler.lost) == (3, 1)


@pytest.mark.parametrize(("method", "code"), [("create_detector", 1502), ("changes", 1501)])
async def test_at_the_deadline_the_outcome_of_a_change_that_was_made_is_unknown(
    scheduler: SchedulerProcess, method: str, code: int
) -> None:
    scheduler.answers = [ActorDied("it ended")]
    with pytest.raises(DetectorUnavailable, match="it ended") as failed:
        await scheduler.connection.ask(method, int)
    assert failed.value.code == code


async def test_at_the_deadline_a_change_under_way_is_not_said_to_be_out_of_reach(
    scheduler: SchedulerProcess,
) -> None:
    scheduler.takes_s = 2 * DEADLINE_S
    with pytest.raises(DetectorUnavailable, match="has not completed the request") as failed:
        await scheduler.connection.ask("fork_detector", int)
    assert failed.value.code == 1502


@pytest.mark.parametrize(
    ("connects", "least_s", "most_s"),
    [
        (OSError("refused"), DEADLINE_S, DEADLINE_S + 1),
        (StorageError("no folder"), 0, 1),
        (Unreachable("gone"), 0, 1),
    ],
)
async def test_a_call_that_was_never_made_is_refused_at_once_if_no_later_attempt_can_succeed(
    scheduler: SchedulerProcess, connects: Exception, least_s: float, most_s: float
) -> None:
    scheduler.connects = [connects]
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(DetectorUnavailable, match=str(connects)) as failed:
        await scheduler.connection.ask("create_detector", int)
    assert failed.value.code == 1501
    assert least_s <= asyncio.get_running_loop().time() - began_s <= most_s


async def test_what_is_to_be_answered_soon_does_not_wait_for_the_deadline(
    scheduler: SchedulerProcess,
) -> None:
    scheduler.connects = [OSError("refused")]
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(DetectorUnavailable, match="does not answer") as failed:
        await scheduler.connection.ask("status", int)
    assert failed.value.code == 1501
    assert asyncio.get_running_loop().time() - began_s < DEADLINE_S / 2


async def test_refused_calls_say_that_the_server_is_shutting_down(scheduler: SchedulerProcess) -> None:
    scheduler.connects = [OSError("refused")]
    pending = asyncio.create_task(scheduler.connection.ask("create_detector", int))
    await asyncio.sleep(1)
    scheduler.connection.refuse_all()
    for call in (pending, scheduler.connection.ask("create_detector", int)):
        with pytest.raises(DetectorUnavailable) as refused:
            await call
        assert refused.value.code == 1503


async def test_the_start_waits_until_it_can_connect(scheduler: SchedulerProcess) -> None:
    scheduler.connects = [OSError("not yet"), ActorDied("not yet"), None]
    await scheduler.connection.start()
    assert scheduler.attempts == 3


@pytest.mark.parametrize(
    ("connects", "kind"), [(Unreachable("gone"), StorageError), (OSError("refused"), DetectorUnavailable)]
)
async def test_the_start_fails_when_it_cannot_connect(
    scheduler: SchedulerProcess, connects: Exception, kind: type[Exception]
) -> None:
    scheduler.connects = [connects]
    with pytest.raises(kind, match=str(connects)):
        await scheduler.connection.start()
