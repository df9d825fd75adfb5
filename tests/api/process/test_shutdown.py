"""The end of a front end: what has not finished by the end of the grace is answered nevertheless."""

import asyncio
import dataclasses
import json
import socket

from api.http.app import Application
from api.process.front_end import serve_on
from tests.api.conftest import BOOTSTRAP
from tests.api.wire import EVENT, Wire, request
from tests.local_runtime.service import until


async def _hang(_: str) -> None:
    await asyncio.Event().wait()


async def test_what_has_not_finished_by_the_end_of_the_grace_is_refused_in_the_envelope(settings, service):
    backend = service.backend
    detector_id = await backend.create_detector("one")
    for actor in service.actors.started:
        actor.before = _hang
    settings = dataclasses.replace(settings, shutdown_grace_s=0)
    listener = socket.create_server(("127.0.0.1", 0))
    wire, stop = Wire(listener.getsockname()[1]), asyncio.Event()
    app = Application(settings, backend)
    serving = asyncio.ensure_future(
        serve_on(listener, app, settings, until=stop.wait, wait_s=lambda: 0.0, grace_s=lambda: 0.0)
    )
    evaluate = request("POST", f"/api/detectors/{detector_id}/evaluate", EVENT, token=BOOTSTRAP)
    asking = asyncio.ensure_future(wire.once(evaluate))
    await until(lambda: any(actor.calls for actor in service.actors.started))
    stop.set()
    reply = await asking
    envelope = json.loads(reply.body)
    assert not envelope["success"]
    # A front end apart does not know what becomes of what it has passed on.
    assert (reply.status, envelope["errors"][0]["code"]) in [(503, 1503), (504, 1502)]
    await wire.hang_up()
    await asyncio.wait_for(serving, 5)
