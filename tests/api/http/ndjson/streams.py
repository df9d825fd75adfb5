"""The operation of the tests of streams, and a detector that gives each event back."""

from collections.abc import Callable
from typing import Any

from engine.evaluation.wire.events import Answer, Done
from engine.runtime.contract.requests.operations import Operation
from tests.api.scripted import DETECTOR
from tests.api.streaming import Streaming
from tests.api.wire import request

PATH = f"/api/detectors/{DETECTOR}/evaluate/batch"

Begin = Callable[[str], Any]


def echoes(_: str, operation: Operation) -> Answer:
    """Answer each line with its length."""
    found = operation.payload.split(b"\n")
    return Done(b"\n".join(b'{"actions":[],"length":%d}' % len(one) for one in found))


async def good(one: Streaming) -> bool:
    """Return whether the connection still serves."""
    reply = await (await one.connection.send(request("GET", "/healthz"))).receive()
    return reply.status == 200
