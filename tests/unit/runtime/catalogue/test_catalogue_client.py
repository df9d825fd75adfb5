"""What is said of a change whose attempts had no answer: that nothing was done, or that it is not known."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from engine.language.diagnostics import Refusal
from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.catalogue_client import CatalogueClient
from engine.runtime.contract.catalogue_changes import Opened, StoredToken
from engine.runtime.contract.errors import ActorDied, DetectorUnavailable
from engine.runtime.contract.settings import RuntimeSettings
from snapshots.errors import NoRoom, StorageError, SyncFailed, WriteFailed
from tests.local_runtime.service import local_service

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


class Scripted:
    """A directory whose attempts come out as scripted, one after the other; the last goes on for ever."""

    def __init__(self, *outcomes: object) -> None:
        self._outcomes = list(outcomes)

    async def start(self) -> "Scripted":
        if isinstance(self._outcomes[0], str):
            raise ActorDied(self._outcomes[0])
        return self

    async def call(self, method: Callable[..., Any], *_: object, **__: object) -> Any:
        if method is Catalogue.open:
            return Opened((), 1)
        outcome = self._outcomes[0]
        if len(self._outcomes) > 1:
            self._outcomes.pop(0)
        if outcome is HANGS:
            await asyncio.Event().wait()
        if isinstance(outcome, Exception):
            raise outcome
        return [outcome] if method is Catalogue.create_detectors else outcome

    async def end(self) -> None:
        pass


def client_of(tmp_path: Path, *outcomes: object) -> CatalogueClient:
    settings = RuntimeSettings(data=tmp_path, deadline_s=0.1, ask_s=0.005, directory_hung_s=0.02)
    return CatalogueClient(Scripted(*outcomes), settings)  # type: ignore[arg-type]


async def code(asked: Awaitable[Any]) -> int | Any:
    try:
        return await asked
    except DetectorUnavailable as error:
        return error.code


DEAD, CANNOT_START = ActorDied("it died"), "no process can be started"


@pytest.mark.parametrize(
    ("outcomes", "changed", "read"),
    [
        pytest.param((CANNOT_START,), 1501, 1501, id="it never ran"),
        pytest.param((HANGS,), 1502, 1501, id="no attempt was answered"),
        pytest.param((DEAD, CANNOT_START), 1502, 1501, id="it died over the first, and does not come back"),
        pytest.param((NoRoom("full"),), 1501, 1501, id="there was no room"),
        pytest.param((WriteFailed("disk"),), 1501, 1501, id="it was not written"),
        pytest.param((SyncFailed("disk"),), 1502, 1501, id="it was written, and perhaps not to the disk"),
        pytest.param((StorageError("disk"),), 1502, 1501, id="another error of the disk"),
        pytest.param((DEAD, NoRoom("full")), 1502, 1501, id="it died over the first, then there was no room"),
        pytest.param((DEAD, 7), 7, 7, id="it died over the first, and answered the second"),
    ],
)
@pytest.mark.parametrize("name", [*CHANGES, *READS])
async def test_only_a_change_that_was_certainly_not_made_is_refused_as_such(
    tmp_path, name, outcomes, changed, read
):
    client = client_of(tmp_path, *outcomes)
    assert await code((CHANGES | READS)[name](client)) == (changed if name in CHANGES else read)


@pytest.mark.parametrize("name", [*CHANGES, *READS])
@pytest.mark.parametrize("begun", [True, False])
async def test_a_change_that_is_under_way_at_the_end_may_have_been_made(tmp_path, name, begun):
    client = client_of(tmp_path, HANGS if begun else CANNOT_START)
    asked = asyncio.create_task(code((CHANGES | READS)[name](client)))
    await asyncio.sleep(0.01)
    client.refuse_all()
    assert await asked == (1502 if begun and name in CHANGES else 1503)


@pytest.mark.parametrize("name", ["revoke_token", "delete_detector"])
async def test_what_is_gone_at_a_second_attempt_was_removed_by_the_first(tmp_path, name):
    assert await CHANGES[name](client_of(tmp_path, DEAD, None)) == 0
    with pytest.raises(Refusal):
        await CHANGES[name](client_of(tmp_path, None))


async def test_detectors_that_are_created_at_the_same_time_share_calls(tmp_path):
    async with local_service(tmp_path) as service:
        calls = Counter()

        async def count(call: str) -> None:
            calls[call] += 1

        service.directories.started[-1].before = count
        ids = await asyncio.gather(*(service.fleet.create_detector(f"{number}") for number in range(150)))
        assert calls["create_detectors"] == 3, "two of 64, and one of what is left"
        assert sorted(await service.fleet.detectors()) == sorted((one, f"{n}") for n, one in enumerate(ids))


async def test_one_limit_holds_for_those_that_are_created_at_the_same_time(tmp_path):
    async with local_service(tmp_path, detectors_max=3) as service:
        created = (service.fleet.create_detector("") for _ in range(5))
        outcomes = await asyncio.gather(*created, return_exceptions=True)
        assert Counter(map(type, outcomes)) == {str: 3, Refusal: 2}
        assert len(await service.fleet.detectors()) == 3


async def test_a_creation_that_is_asked_for_again_while_it_waits_is_one(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        directory = service.scheduler._catalogue
        versions = await asyncio.gather(*(directory.create_detector(one, "name") for one in "aabba"))
        a, b = versions[0], versions[2]
        assert versions == [a, a, b, b, a]
        assert a != b
