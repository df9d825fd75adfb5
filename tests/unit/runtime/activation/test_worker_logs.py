"""What a worker logs reaches the log of a service, with detector and operation, bounded in rate and size."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from engine.evaluation.explanation import firings
from engine.runtime.cluster.actors.ray_workers import RayWorkerPort
from engine.runtime.cluster.ray_calls import RayActor
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import Address, Crash
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.process import log_records
from engine.runtime.process.log_records import LOGGED, ForwardedLogs, Logged
from engine.runtime.process.processes import Process
from engine.runtime.transport.link import Link, Note, responses
from engine.runtime.transport.link_client import LinkClient
from tests.local_runtime.catalogues import newborn
from tests.local_runtime.service import local_service, until

ONE = "1" * 32
pytestmark = pytest.mark.skipping_clock


@contextmanager
def forwarded(
    records_max: int = 9, *, heard: bool = True, clock_s: Any = lambda: 0.0
) -> Iterator[list[Logged]]:
    """Yield what is forwarded from the log of this process."""
    found: list[Logged] = []

    def send(logged: Logged) -> bool:
        found.append(logged)
        return heard

    logs = ForwardedLogs(asyncio.get_running_loop(), send, records_max=records_max, clock_s=clock_s)
    logs.begin()
    try:
        yield found
    finally:
        logs.end()


async def test_a_traceback_names_the_detector_and_the_operation(tmp_path, monkeypatch):
    newborn(tmp_path, ONE)
    actor = OperationExecutor(RuntimeSettings(data=tmp_path))
    actor.activate(ONE, 1)
    actor.handle([ops.add_rule("r", "a == 1")])

    def breaks(*_: Any) -> Any:
        raise RuntimeError("an explanation that breaks")

    monkeypatch.setattr(firings, "requirements_of", breaks)
    event = ops.evaluate(b'{"event": {"fields": {"a": 1}, "timestamp_ms": 0}}', explained=True)
    with forwarded() as found:
        actor.handle([event._replace(request_id="caller-7")])
        logging.getLogger("engine.x").warning("afterwards")
        await until(lambda: len(found) == 2)
    of_request = {"request": "caller-7", "detector": ONE, "operation": "evaluate_explained"}
    assert found[0].fields == of_request
    assert found[0].detail.endswith("RuntimeError: an explanation that breaks\n")
    assert found[1].fields == {}


async def test_records_beyond_the_rate_are_counted():
    now_s = 0.0
    with forwarded(3, clock_s=lambda: now_s) as found:
        for number in range(8):
            logging.getLogger("snapshots.x").error("number %d", number)
        await until(lambda: len(found) == 4)
        now_s = 10.0
        logging.getLogger("snapshots.x").error("number 8")
        await until(lambda: len(found) == 5)
    said = [one.message for one in found]
    assert said[:3] == ["number 0", "number 1", "number 2"]
    assert said[3] == "5 more records of this process were left out of the log within 10 s"
    assert said[4] == "number 8"


async def test_long_records_lose_their_middle(monkeypatch):
    monkeypatch.setattr(log_records, "_TEXT_CHARS", 100)
    with forwarded() as found:
        broken = ValueError("x" * 1000 + "the end")
        fields = {"name": "z" * 1000}
        logging.getLogger("engine.x").error("y" * 1000, exc_info=broken, extra={"fields": fields})
        await until(lambda: len(found) == 1)
    (record,) = found
    for text in (record.message, record.detail, record.fields["name"]):
        assert len(text) < 150
    assert record.detail.startswith("ValueError")
    assert record.detail.endswith("the end\n")
    assert len(Crash.of(ops.rules(), ValueError("x" * 1000)).detail) < 150


async def test_what_nobody_hears_goes_to_standard_error(capsys):
    with forwarded(heard=False) as found:
        logging.getLogger("engine.x").error("alone")
        await until(lambda: len(found) == 1)
    assert capsys.readouterr().err == "alone\n"


async def test_a_worker_sends_its_records_to_its_scheduler(tmp_path):
    async with local_service(tmp_path) as service:
        detector_id = await service.backend.create_detector("d")
        await service.backend.call(detector_id, ops.rules())
        worker = service.actors.with_detector(detector_id)
        told: list[Note] = []
        worker.client.noted = told.append
        logged = Logged("engine.x", logging.ERROR, "it broke", {}, "why")
        assert worker.service.log(logged)
        await until(lambda: any(note.name == LOGGED for note in told))
        (note,) = [note for note in told if note.name == LOGGED]
        assert msgspec.msgpack.decode(note.body, type=Logged) == logged
        worker.die()
        await until(lambda: not worker.service.log(logged))


async def test_the_supervisor_logs_the_records_of_a_worker_with_its_name(caplog):
    client = LinkClient(Link(responses))
    actor: Any = RayActor(None, "worker-1")
    address = Address("place", node="node-1")
    process = Process(0, "10.0.0.7", here=False)
    port = RayWorkerPort(actor, address, client, client, process=process, term=int, end=actor.try_to_end)
    logged = Logged("engine.x", logging.ERROR, "it broke", {"detector": ONE}, "why")
    client.noted(Note(LOGGED, msgspec.msgpack.encode(logged)))
    (record,) = [record for record in caplog.records if record.name == "engine.x"]
    assert record.getMessage() == "it broke"
    assert record.fields == {"detector": ONE, "worker": "worker-1", "node": "node-1"}
    assert record.detail == "why"
    assert port.node == "node-1"
