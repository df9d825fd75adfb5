"""The log names the requests of a detector by their ids, also where they came through another process."""

import asyncio
import json
import logging
from typing import Any

import pytest

from engine.evaluation.wire.events import Refused
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import CurrentRequest, begin_request
from engine.runtime.detector import apply as apply_module
from engine.runtime.front_end.backend import Backend
from tests.local_runtime.service import front_end, local_service, until

pytestmark = pytest.mark.skipping_clock


async def asked(backend: Backend, detector_id: str, request_id: str, **fields: Any) -> Any:
    """Have an event evaluated for a request; for its own task."""
    begin_request(CurrentRequest(request_id))
    body = json.dumps({"event": {"fields": fields, "timestamp_ms": 0}}).encode()
    try:
        return await backend.call(detector_id, ops.evaluate(body))
    except DetectorUnavailable as error:
        return error


def told(caplog: pytest.LogCaptureFixture, said: str) -> list[dict[str, str]]:
    """Return the fields of the records that say so."""
    return [record.fields for record in caplog.records if said in record.getMessage()]


@pytest.mark.parametrize("apart", [False, True])
async def test_an_operation_that_breaks_the_engine_is_logged_with_its_own_request(
    tmp_path, monkeypatch, caplog, *, apart
):
    evaluate_body = apply_module.evaluate_body

    def breaks(detector: Any, body: bytes) -> Any:
        if b"crash" in body:
            raise RuntimeError("an engine that breaks")
        return evaluate_body(detector, body)

    monkeypatch.setattr(apply_module, "evaluate_body", breaks)
    async with local_service(tmp_path) as service, front_end(service) as other:
        backend = other.backend if apart else service.backend
        detector_id = await backend.create_detector("d")
        # The first one begins the work that the others are done by.
        await asyncio.create_task(asked(backend, detector_id, "first"))
        broken = await asyncio.create_task(asked(backend, detector_id, "second", crash=1))
        assert isinstance(broken, Refused)
        (fields,) = told(caplog, "an internal error")
        assert fields == {"request": "second", "detector": detector_id, "operation": "evaluate"}


@pytest.mark.parametrize("apart", [False, True])
async def test_requests_whose_actor_dies_are_named(tmp_path, caplog, *, apart):
    async with local_service(tmp_path) as service, front_end(service) as other:
        backend = other.backend if apart else service.backend
        detector_id = await backend.create_detector("d")
        assert await asyncio.create_task(asked(backend, detector_id, "before"))
        actor = service.actors.with_detector(detector_id)
        held = asyncio.Event()

        async def hold(call: str) -> None:
            if call == "handle":
                held.set()
                await asyncio.sleep(60)

        actor.before = hold
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            first = asyncio.create_task(asked(backend, detector_id, "one"))
            await held.wait()
            actor.die()
            assert (await first).code == 1502
            await until(lambda: told(caplog, "its process died during requests"))
        (fields,) = told(caplog, "its process died during requests")
        assert fields == {"detector": detector_id, "operation": "evaluate", "requests": "one"}


def test_a_request_in_several_calls_adds_up_their_times_and_says_what_it_does_not_know():
    request = CurrentRequest("one")
    assert (request.queued_s, request.evaluated_s, request.synced_s) == (None, None, None)
    request.add(1.0, None, None)
    assert (request.queued_s, request.evaluated_s, request.synced_s) == (1.0, None, None)
    request.add(2.0, 0.5, 0.0)
    request.add(0.0, 0.25, 3.0)
    assert (request.queued_s, request.evaluated_s, request.synced_s) == (3.0, 0.75, 3.0)
    assert CurrentRequest("").fields == {}
