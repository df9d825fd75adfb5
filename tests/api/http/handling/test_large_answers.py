"""Large answers of detectors: they pass through a front end without being copied."""

import asyncio
import tracemalloc

import pytest

from api.http.app import Application
from api.schema.envelope import success
from api.server.connection_limit import ConnectionLimit
from api.settings import Settings
from engine.evaluation.wire.events import Answer, Done
from engine.runtime.contract.requests.operations import Operation
from tests.api.leaks import run
from tests.api.scripted import DETECTOR, TOKEN, ScriptedBackend
from tests.api.wire import EVALUATE, EVENT, request, served

BYTES = 32 * 1024 * 1024
"""More than the system buffers."""

ASKED = {
    "fast path": request("POST", EVALUATE, EVENT, token=TOKEN),
    "slow path": request("GET", f"/api/detectors/{DETECTOR}/state", token=TOKEN),
}


async def _peak_while(asked: bytes, result: bytes) -> int:
    """Return how much memory an answer takes at most beside its result; check what arrives of it."""
    settings, scripted = Settings(), ScriptedBackend()

    async def answer(_: str, operation: Operation) -> Answer:
        return Done(result)

    scripted.answers = answer
    limit = ConnectionLimit(10, memory=scripted.memory)
    async with served(Application(settings, scripted), settings, limit) as wire, asyncio.timeout(60):
        connection = await wire.connect()
        tracemalloc.start()
        await connection.send(asked)
        # The caller does not read yet, so the server holds most of it.
        while scripted.memory.answers == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        reply = await connection.receive()
        assert (reply.status, reply.body) == (200, b"".join(success(result).pieces))
    return peak


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_large_answer_is_not_copied_into_its_envelope(asked: bytes) -> None:
    async def measured() -> None:
        assert await _peak_while(asked, b"1" * BYTES) < BYTES // 2

    run("uvloop", measured())
