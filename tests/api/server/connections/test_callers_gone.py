"""Requests whose caller left before the end of the reply: they are counted, under a status of their own."""

import asyncio

import pytest

from engine.evaluation.wire.events import Answer
from engine.runtime.contract.requests.operations import Operation
from tests.api.scripted import DETECTOR, NO_ACTIONS, TOKEN, ScriptedBackend
from tests.api.wire import EVALUATE, EVENT, Wire, request

RULES = f"/api/detectors/{DETECTOR}/rules"
CHUNKED = "Transfer-Encoding: chunked"
LINES = "Content-Type: application/x-ndjson"

WHOLE = {
    "evaluate": request(path=EVALUATE, body=EVENT, token=TOKEN),
    "list_rules": request("GET", RULES, token=TOKEN),
    "evaluate_batch": request(path=EVALUATE + "/batch", body=b'{"events": []}', token=TOKEN),
}
AMID = {
    "evaluate": request(path=EVALUATE, token=TOKEN, headers=("Content-Length: 100",)),
    "create_rule": request(path=RULES, token=TOKEN, headers=(CHUNKED,)) + b"2\r\n{}\r\n",
    "evaluate_stream": request(path=EVALUATE + "/batch", token=TOKEN, headers=(CHUNKED, LINES))
    + b"%x\r\n%b\r\n" % (len(EVENT) + 1, EVENT + b"\n"),
}


async def counted(wire: Wire, scripted: ScriptedBackend, operation: str) -> dict[str, float]:
    """Return how often each status was counted for the operation, once any was."""
    for _ in range(200):
        assert (await wire.once(request("GET", "/metrics"))).status == 200
        found = {
            name[2]: value
            for name, value in scripted.front_end_counts.items()
            if name[0] == "requests" and name[1] == operation
        }
        if found:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"nothing was counted for {operation}")


@pytest.mark.parametrize("operation", WHOLE)
async def test_who_leaves_while_the_answer_is_awaited_is_counted(
    wire: Wire, scripted: ScriptedBackend, operation: str
) -> None:
    begun = asyncio.Event()

    async def stuck(_: str, __: Operation) -> Answer:
        begun.set()
        await asyncio.sleep(60)
        return NO_ACTIONS

    scripted.answers = stuck
    caller = await wire.connect()
    await caller.send(WHOLE[operation])
    await begun.wait()
    await caller.close()
    assert await counted(wire, scripted, operation) == {"499": 1}


@pytest.mark.parametrize("operation", AMID)
async def test_who_leaves_amid_a_body_is_counted(
    wire: Wire, scripted: ScriptedBackend, operation: str
) -> None:
    caller = await wire.connect()
    await caller.send(AMID[operation])
    await asyncio.sleep(0.1)
    await caller.close()
    assert await counted(wire, scripted, operation) == {"499": 1}
