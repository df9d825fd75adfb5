"""Front ends in processes apart from the scheduler: the same answers, and nothing left behind."""

import asyncio
import json
import socket
from typing import Any

import pytest
from msgspec import Raw

from engine.language.diagnostics import Refusal
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.tokens import digest_of
from engine.runtime.transport.link import MESSAGES, Ask, encode, encoder, pieces
from engine.runtime.transport.server_connection import ServerConnection
from tests.local_runtime.service import FrontEnd, LocalService, front_end, local_service, until

pytestmark = pytest.mark.skipping_clock


def event(timestamp_ms: float, **fields: Any) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": fields, "timestamp_ms": timestamp_ms}}).encode())


async def refused(work: Any) -> int:
    with pytest.raises((Refusal, DetectorUnavailable)) as caught:
        await work
    return int(caught.value.code)


def held_back(service: LocalService) -> asyncio.Event:
    """Have every actor wait with its batches for the event."""
    gate = asyncio.Event()

    async def before(call: str) -> None:
        if call == "handle":
            await gate.wait()

    for actor in service.actors.started:
        actor.before = before
    return gate


def waiting(apart: FrontEnd, detector_id: str) -> tuple[int, int]:
    """The number and the bytes of the requests that wait in a front end."""
    mailbox = apart.backend.channels[detector_id]._mailbox
    return len(mailbox), mailbox.bytes


def in_flight(apart: FrontEnd, detector_id: str) -> int:
    return len(apart.backend.channels[detector_id]._in_flight)


def open_asks(apart: FrontEnd) -> tuple[int, int]:
    return apart.serves.under_way, apart.asks._client.under_way


async def test_two_front_ends_share_the_one_history_of_a_detector(tmp_path):
    async with local_service(tmp_path) as service, front_end(service) as one, front_end(service) as two:
        detector_id = await one.backend.create_detector("shared")
        assert await two.backend.detectors() == [(detector_id, "shared")]
        await two.backend.call(detector_id, ops.add_rule("seen", "once a == 1"))
        await one.backend.call(detector_id, event(1, a=1))
        answer = await two.backend.call(detector_id, event(2))
        assert json.loads(answer.result)["actions"][0]["name"] == "seen"
        assert len(service.scheduler._placed) == 1


async def test_what_several_ask_at_once_goes_on_as_one_batch(tmp_path):
    async with local_service(tmp_path) as service, front_end(service) as one, front_end(service) as two:
        detector_id = await one.backend.create_detector("busy")
        await two.backend.detectors()
        for each in (one, two, service):
            await each.backend.call(detector_id, event(1))
        gate = held_back(service)
        first = asyncio.create_task(service.backend.call(detector_id, event(2)))
        actor = service.actors.with_detector(detector_id)
        await until(lambda: actor.in_flight)
        calls = [asyncio.create_task(each.backend.call(detector_id, event(3))) for each in (one, two) * 20]
        await until(lambda: actor.waiting == 2)
        gate.set()
        await asyncio.gather(first, *calls)
        assert [size for call, size in actor.calls if call == "handle"] == [1, 1, 1, 1, 40]
        assert actor.in_flight_most == 1


async def test_a_refusal_is_the_same_by_either_way(tmp_path):
    async with local_service(tmp_path, waiting_max=1) as service, front_end(service) as apart:
        known = await apart.backend.create_detector("known")
        for backend in (service.backend, apart.backend):
            assert await refused(backend.call("0" * 32, event(1))) == 1200
            assert await refused(backend.delete_detector("0" * 32)) == 1200
            assert await refused(backend.revoke_token("unknown")) == 1202
            answer = await backend.call(known, ops.add_rule("r", "a =="))
            assert [entry.code for entry in answer.entries] == [1300]
        gate = held_back(service)
        calls = []
        for count in (1, 2):
            calls.append(asyncio.create_task(apart.backend.call(known, event(1))))
            await until(lambda: in_flight(apart, known) == 1)
            await until(lambda count=count: waiting(apart, known)[0] == count - 1)
        with pytest.raises(DetectorUnavailable) as caught:
            await apart.backend.call(known, event(1))
        assert (caught.value.code, caught.value.retry_after_s) == (1401, 1.0)
        gate.set()
        await asyncio.gather(*calls)


async def test_a_caller_who_goes_leaves_no_place_taken(tmp_path):
    async with local_service(tmp_path) as service, front_end(service) as apart:
        detector_id = await apart.backend.create_detector("left")
        await apart.backend.call(detector_id, event(1))
        gate = held_back(service)
        large = event(2, text="x" * 100)
        calls = []
        for count in (1, 50):
            # The first one is in flight when the others come, which wait for it.
            calls += [asyncio.create_task(apart.backend.call(detector_id, large)) for _ in range(count)]
            await until(lambda: in_flight(apart, detector_id))
        await until(lambda: waiting(apart, detector_id)[0] == 50)
        for call in calls:
            call.cancel()
        await until(lambda: waiting(apart, detector_id) == (0, 0))
        gate.set()
        assert json.loads((await apart.backend.call(detector_id, event(3))).result) == {"actions": []}


async def test_a_front_end_that_dies_takes_its_batch_with_it_and_no_other_notices(tmp_path):
    async with local_service(tmp_path) as service, front_end(service) as dying, front_end(service) as other:
        detector_id = await other.backend.create_detector("left")
        await dying.backend.call(detector_id, event(1))
        gate = held_back(service)
        first = asyncio.create_task(service.backend.call(detector_id, event(2)))
        actor = service.actors.with_detector(detector_id)
        await until(lambda: actor.in_flight)
        lost = [asyncio.create_task(dying.backend.call(detector_id, event(9))) for _ in range(20)]
        kept = [asyncio.create_task(other.backend.call(detector_id, event(3))) for _ in range(20)]
        await until(lambda: actor.waiting == 2)
        dying.asks._client.link.abort()
        (client,) = dying.backend.channels._clients.values()
        client.link.abort()
        await until(lambda: set(dying.lost) == {"front end", "server"})
        assert dying.serves.under_way == 0
        assert [await refused(call) for call in lost] == [1502] * 20
        gate.set()
        answers = await asyncio.gather(first, *kept)
        assert all(json.loads(answer.result) == {"actions": []} for answer in answers)
        assert actor.actor._active.detector.clock_us == 3_000, "what nobody waits for any more is not begun"
        assert await refused(dying.backend.call(detector_id, event(4))) == 1501


async def test_a_worker_is_reached_without_the_scheduler(tmp_path):
    """Front ends go on with the detectors that they know while the scheduler answers nothing."""
    async with local_service(tmp_path) as service, front_end(service) as apart:
        detector_id = await apart.backend.create_detector("known")
        await apart.backend.call(detector_id, event(1))
        apart.serves.methods = {}
        answers = await asyncio.gather(*(apart.backend.call(detector_id, event(2)) for _ in range(50)))
        assert all(json.loads(answer.result) == {"actions": []} for answer in answers)
        assert apart.serves.under_way == 0


async def test_a_front_end_follows_a_detector_that_has_moved(tmp_path):
    async with (
        local_service(tmp_path, max_resident=1, turn_s=0.0) as service,
        front_end(service) as one,
        front_end(service) as two,
    ):
        first, second = await one.backend.create_detector("1"), await one.backend.create_detector("2")
        await two.backend.detectors()
        await one.backend.call(first, ops.add_rule("seen", "once a == 1"))
        await one.backend.call(first, event(1, a=1))
        for number in range(2, 12):
            await two.backend.call(second, event(number))
            (action,) = json.loads((await one.backend.call(first, event(number))).result)["actions"]
            assert action["name"] == "seen"
        assert service.scheduler.counts["detectors_activated"] >= 20


async def test_a_token_revoked_through_one_is_refused_by_another_within_a_second(tmp_path):
    async with local_service(tmp_path) as service, front_end(service) as one, front_end(service) as two:
        digest = digest_of((minted := await one.backend.mint_token()).token)
        assert not two.backend.permit(digest)
        assert await two.backend.permit_asked(digest)
        await one.backend.revoke_token(minted.id)
        assert not one.backend.permit(digest)
        async with asyncio.timeout(1):
            await until(lambda: not two.backend.permit(digest))


async def test_a_front_end_whose_host_is_silent_trusts_no_token(tmp_path):
    async with (
        local_service(tmp_path) as service,
        front_end(service, directory_answer_age_max_s=0.2, poll_s=0.01) as apart,
    ):
        digest = digest_of((await apart.backend.mint_token()).token)
        await until(lambda: apart.backend.answer_is_fresh)
        apart.serves.close()
        await until(lambda: not apart.backend.answer_is_fresh)
        with pytest.raises(DetectorUnavailable, match="has not answered"):
            apart.backend.permit(digest)
        assert await refused(apart.backend.status()) == 1501


async def test_an_error_of_the_host_is_no_answer_and_reaches_the_log(tmp_path, caplog):
    async with local_service(tmp_path) as service, front_end(service) as apart:

        async def broken() -> None:
            raise ZeroDivisionError("of its own")

        apart.serves.methods = {**apart.serves.methods, "status": broken}
        with pytest.raises(ZeroDivisionError, match="of its own"):
            await apart.backend.status()
        assert "of its own" in caplog.text
        await until(lambda: open_asks(apart) == (0, 0))


async def test_what_front_ends_count_is_added_up(tmp_path):
    async with local_service(tmp_path) as service, front_end(service) as one, front_end(service) as two:
        await one.backend.add_counts({("requests", "evaluate", "200"): 2, ("seconds", "evaluate"): 0.5})
        await two.backend.add_counts({("requests", "evaluate", "200"): 3})
        front_end_counts = (await one.backend.status()).front_end_counts
        assert front_end_counts == {("requests", "evaluate", "200"): 5, ("seconds", "evaluate"): 0.5}


async def test_one_that_does_not_take_answers_is_not_read_from(tmp_path):
    async with local_service(tmp_path) as service:
        for number in range(200):
            await service.backend.create_detector(f"{number} " + "x" * 200)
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        server = ServerConnection(service.backend.scheduler.relay())
        await server.start(ours)
        loop = asyncio.get_running_loop()
        asked = 0

        async def ask_on() -> None:
            nonlocal asked
            arguments = Raw(encoder.encode((0, 0)))
            while True:
                payload = encode([Ask(asked + number, "changes", arguments) for number in range(50)])
                await asyncio.wait_for(
                    loop.sock_sendall(theirs, b"".join(pieces(MESSAGES, payload))), timeout=1
                )
                asked += 50

        # It asks, and reads nothing: by and by its asks are not read either.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask_on(), timeout=20)
        assert asked < 50_000
        assert server.under_way + server.waiting < 20_000
        theirs.close()
        await until(lambda: server.under_way == 0)
