"""What the tests ask of a backend."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from engine.evaluation.wire.events import Refused
from engine.language.diagnostics import Refusal
from engine.runtime.contract.errors import DetectorUnavailable
from tests.local_runtime.owners import event


async def fired(backend: Any, detector_id: str, timestamp_ms: float, **fields: Any) -> list[str]:
    answer = await backend.call(detector_id, event(timestamp_ms, **fields))
    return [action["name"] for action in json.loads(answer.result)["actions"]]


async def fired_at_last(backend: Any, detector_id: str, timestamp_ms: float) -> list[str]:
    """The same as `fired`, once the detector is tried again and found sound."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(DetectorUnavailable):
                answer = await backend.call(detector_id, event(timestamp_ms))
                if not isinstance(answer, Refused):
                    return [action["name"] for action in json.loads(answer.result)["actions"]]
            await asyncio.sleep(0.005)


async def refused(work: Any) -> int:
    with pytest.raises((Refusal, DetectorUnavailable)) as caught:
        await work
    return int(caught.value.code)
