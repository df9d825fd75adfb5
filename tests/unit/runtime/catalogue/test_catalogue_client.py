"""What is said of a change whose attempts had no answer: that nothing was done, or that it is not known."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.language.diagnostics import Refusal
from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.catalogue_client import CatalogueClient
from engine.runtime.concurrency.threads import Threads
from engine.runtime.contract.catalogue_changes import Opened
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import StoredToken
from snapshots.errors import Fenced, NoRoom, StorageError, SyncFailed, WriteFailed
from tests.local_runtime.service import local_service, until

pytestmark = pytest.mark.skipping_clock

CHANGES: dict[str, Callable[[CatalogueClient], Awaitable[Any]]] = {
    "add_token": lambda client: client.add_token("t", StoredToken(b"digest", "hint")),
    "revoke_token": lambda client: client.revoke_token("t"),
    "create_detector": lambda client: client.create_detector("d", "name"),
    "delete_detector": lambda client: client.delete_detector("d"),
}
READS: dict[str, Callable[[CatalogueClient], Awaitable[Any]]] = {
    "changes": lambda client: client.changes(0, 0),
    "tokens": lambda client: client.tokens(),
    "lease": lambda client: client.lease("d"),
}

HANGS = object()
CANNOT_OPEN = object()


class Scripted(Threads):
    """A thread whose calls come out as scripted, one after the other; the last goes on for ever."""

    def __init__(self, *outcomes: object) -> None:
        self._outcomes = list(outcomes)
        self.opened = self.closed = 0

    async def call(self, call: Callable[[], Any]) -> Any:
        if not isinstance(call, partial):
            if self._outcomes[0] is CANNOT_OPEN:
                raise StorageError("no folder")
            if call.__name__ == "close":
                self.closed += 1
                return None
            self.opened += 1
            return Opened((), self.opened)
        outcome = self._outcomes[0]
        if len(self._outcomes) > 1:
            self._outcomes.pop(0)
        if outcome is HANGS:
            await asyncio.Event().wait()
        if isinstance(outcome, Exception):
            raise outcome
        return [outcome] if call.func is Catalogue.create_detectors else outcome


class Script:
    def __init__(self, folder: Path, *outcomes: object) -> None:
        self.thread = Scripted(*outcomes)
        self.given_up: list[str] = []
        settings = RuntimeSettings(data=folder, deadline_s=0.1, directory_hung_s=0.02)
        known = RuntimeSettings(data=folder, snapshots_kept=1, lock_wait_s=0)
        self.client = CatalogueClient(lambda: Catalogue(known), settings, self.thread, self.given_up.append)


async def code(asked: Awaitable[Any]) -> int | Any:
    try:
        return await asked
    except DetectorUnavailable as error:
        return error.code


@pytest.mark.parametrize(
    ("outcome", "changed", "read"),
    [
        pytest.param(CANNOT_OPEN, 1501, 1501, id="it cannot be opened"),
        pytest.param(HANGS, 1502, 1501, id="the disk hangs"),
        pytest.param(NoRoom("full"), 1501, 1501, id="there was no room"),
        pytest.param(WriteFailed("disk"), 1501, 1501, id="it was not written"),
        pytest.param(SyncFailed("disk"), 1502, 1501, id="it was written, and perhaps not to the disk"),
        pytest.param(StorageError("disk"), 1502, 1501, id="another error of the disk"),
        pytest.param(7, 7, 7, id="it was answered"),
    ],
)
@pytest.mark.parametrize("name", [*CHANGES, *READS])
async def test_only_a_change_that_was_certainly_not_made_is_refused_as_such(
    tmp_path, name, outcome, changed, read
):
    client = Script(tmp_path, outcome).client
    assert await code((CHANGES | READS)[name](client)) == (changed if name in CHANGES else read)


@pytest.mark.parametrize("error", [StorageError("disk"), NoRoom("full")])
async def test_after_an_error_of_the_disk_it_is_opened_again_unless_there_was_only_no_room(tmp_path, error):
    script = Script(tmp_path, error, 7)
    assert await code(script.client.tokens()) == 1501
    assert (script.client.problem is None) is isinstance(error, NoRoom)
    assert await script.client.tokens() == 7
    assert script.client.problem is None
    assert (script.thread.opened, script.thread.closed) == ((1, 0) if isinstance(error, NoRoom) else (2, 1))
    assert script.client.term == script.thread.opened


@pytest.mark.parametrize(
    ("outcome", "why"), [(Fenced("a later one"), "a later one"), (HANGS, "the disk does not answer")]
)
async def test_a_directory_that_must_not_answer_any_more_gives_up(tmp_path, outcome, why):
    script = Script(tmp_path, outcome)
    assert await code(script.client.tokens()) == 1501
    assert script.given_up == [why]


async def test_detectors_that_are_created_at_the_same_time_share_calls(tmp_path):
    async with local_service(tmp_path) as service:
        ids = await asyncio.gather(*(service.backend.create_detector(f"{number}") for number in range(150)))
        assert service.directories.calls.count("create_detectors") == 3, "two of 64, and one of what is left"
        assert sorted(await service.backend.detectors()) == sorted((one, f"{n}") for n, one in enumerate(ids))


async def test_creations_that_wait_share_the_next_call_and_its_error(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        go_on, called = asyncio.Event(), 0

        async def before(call: str) -> None:
            nonlocal called
            if call == "create_detectors":
                called += 1
                await go_on.wait()
                if called == 2:
                    raise NoRoom("full")

        service.directories.before = before
        create = service.scheduler.catalogue.create_detector
        first = asyncio.create_task(create("a" * 32, ""))
        await until(lambda: called)
        waiting = [asyncio.create_task(create(one * 32, "")) for one in "bcd"]
        await asyncio.sleep(0)
        waiting[0].cancel()
        go_on.set()
        assert await first
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert list(map(type, outcomes)) == [asyncio.CancelledError, *2 * [DetectorUnavailable]]
        assert await create("e" * 32, ""), "it goes on"
        assert called == 3


async def test_one_limit_holds_for_those_that_are_created_at_the_same_time(tmp_path):
    async with local_service(tmp_path, detectors_max=3) as service:
        created = (service.backend.create_detector("") for _ in range(5))
        outcomes = await asyncio.gather(*created, return_exceptions=True)
        assert Counter(map(type, outcomes)) == {str: 3, Refusal: 2}
        assert len(await service.backend.detectors()) == 3


async def test_a_creation_that_is_asked_for_again_while_it_waits_is_one(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        directory = service.scheduler.catalogue
        versions = await asyncio.gather(*(directory.create_detector(one, "name") for one in "aabba"))
        a, b = versions[0], versions[2]
        assert versions == [a, a, b, b, a]
        assert a != b
