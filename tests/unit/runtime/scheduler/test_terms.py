"""Commands of a directory that was replaced arrive late: its workers refuse them, and it gives up."""

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.errors import DetectorUnavailable, Superseded
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import MAKE_ROOM, REPORT, Held, decode_report, make_room_note
from engine.runtime.transport.link_client import LinkClient
from tests.local_runtime.service import LocalService, local_service, until
from tests.local_runtime.workers import LocalWorker

pytestmark = pytest.mark.skipping_clock

EVENT = ops.evaluate(b'{"event": {"fields": {}, "timestamp_ms": 1}}')
HARMLESS = {"figures"}


async def replaced(service: LocalService) -> tuple[str, LocalWorker, LinkClient]:
    """An active detector, its worker, and the connection of a directory before the present one."""
    detector = await service.backend.create_detector("one")
    assert isinstance(await service.backend.call(detector, EVENT), Done)
    worker = service.actors.with_detector(detector)
    assert worker is not None
    return detector, worker, worker.connected()


def ends(report: bytes) -> list[int]:
    """The epoch of the activation that a report says has ended."""
    decoded = decode_report(report)
    return [] if decoded.ended is None else [decoded.epoch]


async def test_the_term_grows_with_each_opening_of_the_directory(tmp_path):
    terms = []
    for _ in range(3):
        async with local_service(tmp_path) as service:
            terms.append(service.scheduler.catalogue.term)
            service.directories.fail()
            with pytest.raises(DetectorUnavailable):
                await service.scheduler.changes(0, 0)
            await service.scheduler.changes(0, 0)
            terms.append(service.scheduler.catalogue.term)
    assert terms == sorted(set(terms))


async def test_a_late_activation_takes_no_worker_over(tmp_path):
    async with local_service(tmp_path, spares=1) as service:
        detector, worker, late = await replaced(service)
        other = await service.backend.create_detector("two")
        with pytest.raises(Superseded, match="a later directory commands this worker"):
            await late.ask("activate", object, service.scheduler.catalogue.term - 1, other, 1, False, "")
        assert worker.hosts == {detector}
        # It still reports to the present directory, which can give its slot away.
        reported = worker.reported
        reports = []
        worker.reported = lambda report: (reports.append(report), reported(report))[1]
        told = []
        late.noted = told.append
        worker.make_room((await service.scheduler.route(detector, 0)).epoch)
        await until(lambda: not service.scheduler.active_detectors)
        assert any(report.ended is not None for report in reports)
        assert REPORT not in {note.name for note in told}
        assert isinstance(await service.backend.call(detector, EVENT), Done)


async def test_every_command_of_an_earlier_directory_is_refused_and_does_nothing(tmp_path):
    async with local_service(tmp_path, spares=1) as service:
        detector, worker, late = await replaced(service)
        epoch = (await service.scheduler.route(detector, 0)).epoch
        (server,) = [one for one in worker.service.servers if one.heard == 0]
        commands = set(server.methods) - HARMLESS
        assert commands >= {"activate", "held", "delete", "close", "fork"}
        arguments = {
            "activate": ["2" * 32, 1, False, ""],
            "fork": [epoch, "3" * 32],
            "held": [],
        }
        for command in commands:
            given = arguments.get(command, [epoch])
            with pytest.raises(Superseded):
                await late.ask(command, object, service.scheduler.catalogue.term - 1, *given)
        late.note(MAKE_ROOM, make_room_note(service.scheduler.catalogue.term - 1, epoch))
        await late.ask("figures", object)
        assert not worker.service.queues[epoch].activation.schedule.room_wanted
        assert worker.hosts == {detector}
        assert {folder.name for folder in tmp_path.glob("detectors/*")} == {detector}
        assert isinstance(await service.backend.call(detector, EVENT), Done)
        assert (await service.scheduler.route(detector, 0)).epoch == epoch


async def test_commands_of_a_later_directory_are_obeyed_and_reported_to_it(tmp_path):
    async with local_service(tmp_path, spares=1) as service:
        detector, worker, later = await replaced(service)
        epoch = (await service.scheduler.route(detector, 0)).epoch
        ended: list[int] = []
        later.noted = lambda note: ended.extend(ends(note.body) if note.name == REPORT else [])
        term = service.scheduler.catalogue.term + 1
        assert [one.epoch for one in await later.ask("held", list[Held], term)] == [epoch]
        with pytest.raises(Superseded):
            await worker.held()
        later.note(MAKE_ROOM, make_room_note(term, epoch))
        await until(lambda: ended == [epoch])
        # The directory that was replaced still believes in the detector. Nothing of it is left to save.
        service.scheduler._placed.clear()


async def test_a_directory_that_is_refused_gives_the_worker_up(tmp_path):
    """To end the worker it asks whether it was replaced, and then ends itself."""
    async with local_service(tmp_path, spares=1, retry_s=0.01) as service:
        detector, worker, later = await replaced(service)
        ended: list[str] = []

        async def end() -> None:
            ended.append(worker.name)

        worker.end = end  # type: ignore[method-assign]
        await later.ask("held", list[Held], service.scheduler.catalogue.term + 1)
        with pytest.raises(DetectorUnavailable, match="later directory"):
            await service.backend.fork_detector(detector, "fork")
        await service.backend.delete_detector(detector)
        await until(lambda: ended == [worker.name])
