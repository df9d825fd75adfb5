"""A front end that is cut off from the directory: which tokens it trusts, and what it serves."""

import asyncio
import json
from pathlib import Path

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.catalogue_changes import Changes, TableUpdate
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import KnownToken, digest_of
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.front_end.catalogue_cache import CatalogueCache
from tests.local_runtime.service import local_service, until

pytestmark = pytest.mark.skipping_clock

TRUSTED_S = 15.0


class Directory:
    """A directory that takes its time, and from some question on for ever."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.away = False

    async def ask(self, method: str, _: object, *seen: int) -> Changes:
        assert (method, len(seen)) == ("changes", 2)
        if self.away:
            await asyncio.Event().wait()
        changes = Changes(TableUpdate(1, whole={b"digest": KnownToken("t")}), TableUpdate(1, whole={}))
        await asyncio.sleep(self.delay_s)
        return changes


def event(timestamp_ms: float) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": {}, "timestamp_ms": timestamp_ms}}).encode())


async def test_a_token_is_trusted_for_fifteen_seconds_after_the_last_question_that_was_answered() -> None:
    now_s, directory = asyncio.get_running_loop().time, Directory()
    cache = CatalogueCache(directory, RuntimeSettings(data=Path("unused")))
    await cache.start()
    # What was revoked while the answer was under way may be missing in it.
    directory.delay_s = 7.0
    asked_s = now_s()
    await cache.ask()
    assert now_s() >= asked_s + 7
    directory.away = True
    await asyncio.sleep(asked_s + TRUSTED_S - 0.1 - now_s())
    assert cache.permit(b"digest")
    await asyncio.sleep(0.2)
    with pytest.raises(DetectorUnavailable, match="has not answered for 15 seconds") as caught:
        cache.permit(b"digest")
    assert caught.value.code == 1501
    await cache.close()


async def test_its_detectors_answer_whoever_needs_no_stored_token_until_they_have_a_later_owner(tmp_path):
    async with local_service(tmp_path) as service:
        backend = service.backend
        digest = digest_of((await backend.mint_token()).token)
        detector = await backend.create_detector("one")
        await backend.call(detector, event(1))
        service.directories.refuse = True
        service.directories.fail()
        await asyncio.sleep(2 * TRUSTED_S)
        with pytest.raises(DetectorUnavailable, match="has not answered for 15 seconds"):
            backend.permit(digest)
        # Nobody else can have it: whoever has the bootstrap token is answered.
        assert isinstance(await backend.call(detector, event(2)), Done)
        later = OperationExecutor(RuntimeSettings(data=tmp_path))
        later.activate(detector, 2**40)
        for timestamp_ms in (3, 4):
            with pytest.raises(DetectorUnavailable):
                await backend.call(detector, event(timestamp_ms))
        later.discard()
        service.directories.refuse = False
        await until(lambda: backend.answer_is_fresh)
