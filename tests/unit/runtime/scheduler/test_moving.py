"""Detectors that move to another node, one by one or because theirs is drained, while they are used."""

import asyncio
import json

import pytest

from engine.language.diagnostics import Refusal
from engine.runtime.contract.errors import NO_SUCH_DETECTOR, NO_SUCH_NODE, STARTING, DetectorUnavailable
from engine.runtime.contract.figures import NodeFigures
from engine.runtime.contract.requests import operations as ops
from tests.local_runtime.actors import LocalNodes
from tests.local_runtime.service import LocalService, local_service, until

pytestmark = pytest.mark.skipping_clock


QUICK = {"worker_cpus": 0.5, "retry_s": 0.01, "turn_s": 0.0, "spares": 1, "nodes_s": 0.02}
EVENT = b'{"event": {"fields": {"a": 1}, "timestamp_ms": 1000}}'


async def counting(service: LocalService) -> str:
    """Make a detector whose rule tells in its explanation how many events it has seen."""
    detector_id = await service.backend.create_detector("one")
    await service.backend.call(detector_id, ops.add_rule("many", "count(a == 1) >= 1000"))
    return detector_id


async def seen(service: LocalService, detector_id: str) -> int:
    answer = await service.backend.call(detector_id, ops.explain(EVENT))
    found: int = json.loads(answer.result)["rules"][0]["node"]["found"]
    return found - 1


def place(service: LocalService, detector_id: str) -> str | None:
    worker = service.actors.with_detector(detector_id)
    return None if worker is None else worker.node


class Callers:
    """Send events to a detector all the time, and count the answers."""

    def __init__(self, service: LocalService, detector_id: str, number: int = 4) -> None:
        self.answered = 0
        self._service = service
        self._detector_id = detector_id
        self._tasks = [asyncio.create_task(self._run()) for _ in range(number)]

    async def _run(self) -> None:
        while True:
            await self._service.backend.call(self._detector_id, ops.evaluate(EVENT))
            self.answered += 1
            await asyncio.sleep(0)

    async def until(self, more: int) -> None:
        wanted = self.answered + more
        while self.answered < wanted:
            self.check()
            await asyncio.sleep(0.001)

    def check(self) -> None:
        """Raise what a caller was told other than an answer."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def end(self) -> None:
        self.check()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_a_detector_moves_to_and_fro_under_load_and_each_event_is_evaluated_once(tmp_path):
    async with local_service(tmp_path, nodes=LocalNodes(n=8, m=8), **QUICK) as service:
        detector_id = await counting(service)
        callers = Callers(service, detector_id)
        for to in ("m", "n", "m", "n"):
            await callers.until(20)
            await service.backend.move_detector(detector_id, to)
            await callers.until(20)
            assert place(service, detector_id) == to
        await callers.end()
        # A caller that was cut off may have been evaluated.
        assert callers.answered <= await seen(service, detector_id) <= callers.answered + 4


async def test_without_a_node_it_goes_to_another_one_and_where_it_is_it_stays(tmp_path):
    async with local_service(tmp_path, nodes=LocalNodes(n=8, m=8), **QUICK) as service:
        detector_id = await counting(service)
        before = place(service, detector_id)
        assert before is not None
        await service.backend.move_detector(detector_id, before)
        assert place(service, detector_id) == before
        await service.backend.move_detector(detector_id, "")
        assert {before, place(service, detector_id)} == {"n", "m"}


async def test_a_passivated_detector_is_activated_on_the_node(tmp_path):
    async with local_service(tmp_path, nodes=LocalNodes(n=8, m=8), **QUICK) as service:
        for to in ("n", "m"):
            detector_id = await service.backend.create_detector("one")
            route = await service.backend.move_detector(detector_id, to)
            assert place(service, detector_id) == to
            assert route.worker == service.actors.with_detector(detector_id).name


async def test_a_node_that_has_just_joined_can_be_moved_to(tmp_path):
    nodes = LocalNodes(n=8)
    async with local_service(tmp_path, nodes=nodes, **(QUICK | {"nodes_s": 1_000_000})) as service:
        detector_id = await counting(service)
        nodes.cpus["m"] = 8
        await service.backend.move_detector(detector_id, "m")
        assert place(service, detector_id) == "m"


async def test_what_cannot_be_moved_is_refused_and_goes_on_where_it_is(tmp_path):
    nodes = LocalNodes(n=8, m=0.1)
    async with local_service(tmp_path, nodes=nodes, **QUICK) as service:
        detector_id = await counting(service)
        for node in ("elsewhere", "m"):
            with pytest.raises(Refusal) as none:
                await service.backend.move_detector(detector_id, node)
            assert none.value.entries[0].code == NO_SUCH_NODE
        with pytest.raises(Refusal) as gone:
            await service.backend.move_detector("0" * 32, "n")
        assert gone.value.entries[0].code == NO_SUCH_DETECTOR
        with pytest.raises(Refusal, match="no other living node") as nowhere:
            await service.backend.move_detector(detector_id, "")
        assert nowhere.value.entries[0].code == NO_SUCH_NODE
        await service.backend.drain_node("n", draining=True)
        with pytest.raises(Refusal):
            await service.backend.move_detector(detector_id, "n")
        assert place(service, detector_id) == "n"
        assert await seen(service, detector_id) == 0


async def test_a_move_to_a_full_node_is_refused_for_now(tmp_path):
    async with local_service(tmp_path, nodes=LocalNodes(n=8, m=0.5), **QUICK) as service:
        detector_id = await counting(service)
        await service.backend.move_detector(await service.backend.create_detector("other"), "m")
        with pytest.raises(DetectorUnavailable, match="no other node has room") as full:
            await service.backend.move_detector(detector_id, "")
        assert full.value.code == STARTING


async def test_a_move_that_does_not_come_about_gives_back_the_worker_that_was_kept_for_it(tmp_path):
    async with local_service(tmp_path, nodes=LocalNodes(n=8, m=8), deadline_s=1, **QUICK) as service:
        detector_id = await counting(service)
        worker, goes_on = service.actors.with_detector(detector_id), asyncio.Event()

        async def stalls(_: str) -> None:
            await goes_on.wait()

        worker.before = stalls
        asked = asyncio.create_task(service.backend.call(detector_id, ops.evaluate(EVENT)))
        await until(lambda: worker.in_flight)
        with pytest.raises(DetectorUnavailable, match="or it cannot be passivated"):
            await service.scheduler.move(detector_id, "")
        assert sum(one.taken for one in service.scheduler._workers.all) == 1
        goes_on.set()
        with pytest.raises(DetectorUnavailable, match="the deadline passed"):
            await asked


async def test_a_drained_node_loses_its_detectors_and_workers_under_load_until_it_is_not_drained(tmp_path):
    nodes = LocalNodes(n=8, m=8)
    async with local_service(tmp_path, nodes=nodes, **QUICK) as service:
        ids = [await counting(service) for _ in range(6)]
        assert {place(service, each) for each in ids} == {"n", "m"}
        callers = [Callers(service, each, 2) for each in ids]
        for each in callers:
            await each.until(10)
        assert (await service.backend.drain_node("n", draining=True)).draining == "operator"
        # Repeated, it is the same.
        await service.backend.drain_node("n", draining=True)
        await until(lambda: all(one.dead or one.node == "m" for one in service.actors.started))
        for each in callers:
            await each.until(10)
            await each.end()
        assert {place(service, each) for each in ids} == {"m"}
        for each, detector_id in zip(callers, ids, strict=True):
            assert each.answered <= await seen(service, detector_id) <= each.answered + 2
        assert (await service.backend.drain_node("n", draining=False)).draining == ""
        more = [await counting(service) for _ in range(4)]
        assert "n" in {place(service, each) for each in more}


async def test_a_drained_node_keeps_its_detectors_while_no_other_has_room(tmp_path):
    nodes = LocalNodes(n=8, m=0.1)
    async with local_service(tmp_path, nodes=nodes, deadline_s=2, **QUICK) as service:
        service.actors.room.clear()
        detector_id = await counting(service)
        await service.backend.drain_node("n", draining=True)
        await until(
            lambda: any("is not drained yet" in said for said in service.scheduler._moves.problems.values())
        )
        assert await seen(service, detector_id) == 0
        assert place(service, detector_id) == "n"
        nodes.cpus["m"] = 8
        service.actors.room.set()
        await until(lambda: place(service, detector_id) == "m")


async def test_where_no_node_has_room_callers_are_told_what_is_asked_for_and_others_share(tmp_path):
    nodes = LocalNodes(n=0.5)
    async with local_service(tmp_path, nodes=nodes, room_wait_s=0.3, **(QUICK | {"spares": 0})) as service:
        one = await counting(service)
        other = await service.backend.create_detector("other")
        service.actors.room.clear()
        # They take turns with the one worker.
        for _ in range(3):
            for each in (one, other):
                await service.backend.call(each, ops.evaluate(EVENT))
        service.actors.with_detector(other).die()
        nodes.cpus["n"] = 0
        await until(lambda: service.scheduler._workers.no_room is not None)
        with pytest.raises(DetectorUnavailable, match=r"asks for 0\.5 CPUs") as refused:
            await service.backend.call(one, ops.evaluate(EVENT))
        assert refused.value.code == STARTING
        assert any("no node has room" in said for said in (await service.backend.status()).problems)
        nodes.cpus["n"] = 0.5
        service.actors.room.set()
        await until(lambda: service.scheduler._workers.no_room is None)
        # Whoever was refused a moment ago is refused for as long as he is told to wait.
        await asyncio.sleep(0.05)
        await service.backend.call(one, ops.evaluate(EVENT))


@pytest.mark.parametrize("spares", [0, 1])
async def test_while_all_nodes_are_drained_no_worker_is_started(tmp_path, spares):
    nodes = LocalNodes(n=8, m=8)
    settings = QUICK | {"spares": spares, "room_wait_s": 0.1, "deadline_s": 1}
    async with local_service(tmp_path, nodes=nodes, **settings) as service:
        detector_id = await counting(service)
        for node in nodes.cpus:
            await service.backend.drain_node(node, draining=True)
        await until(lambda: sum(not one.dead for one in service.actors.started) == 1)
        asked = len(service.actors.avoided)
        other = await service.backend.create_detector("other")
        with pytest.raises(DetectorUnavailable, match="a worker: 0 of 2 nodes take workers, all are drained"):
            await service.backend.call(other, ops.evaluate(EVENT))
        assert await seen(service, detector_id) == 0
        await asyncio.sleep(0.2)
        assert len(service.actors.avoided) == asked
        here = place(service, detector_id)
        (away,) = nodes.cpus.keys() - {here}
        await service.backend.drain_node(away, draining=False)
        await until(lambda: place(service, detector_id) == away)
        await service.backend.call(other, ops.evaluate(EVENT))
        assert place(service, other) == away


class SilentNodes(LocalNodes):
    """Nodes of which Ray tells nothing from some moment on."""

    silent = False

    async def look(self) -> list[NodeFigures]:
        if self.silent:
            raise ConnectionError("no control store")
        return await super().look()


async def test_nodes_are_shown_as_they_were_while_ray_does_not_tell(tmp_path):
    nodes = SilentNodes(one=4)
    async with local_service(tmp_path, nodes=nodes, **QUICK) as service:
        (node,) = (await service.backend.cluster()).nodes
        nodes.silent = True
        # A picture is at most a second old.
        await asyncio.sleep(1.1)
        assert (await service.backend.cluster()).nodes == [node]
