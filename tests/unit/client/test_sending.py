"""Events in batches: what a batch holds, and what becomes of refused events and full answers."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from api.settings import Settings
from rule_detector_client import AsyncClient, Client, Event, EventResult, ServiceError
from rule_detector_client.sending import BYTES_MAX, EVENTS_MAX, Batches

Evaluate = Callable[["Fake", list[Event]], list[EventResult]]


class Fake:
    """Evaluates nothing: a batch with the field `refused` in it is refused; an answer has room for some."""

    def __init__(self, code: int = 1001, room: int = 10_000) -> None:
        self.bodies: list[Any] = []
        self.keys: list[str] = []
        self._code = code
        self._room = room

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("POST", "/api/detectors/d/evaluate/batch")
        events = json.loads(request.content)["events"]
        self.bodies.append(events)
        self.keys.append(request.headers["Idempotency-Key"])
        if any("refused" in event["fields"] for event in events):
            return _answer(400, [{"code": self._code, "message": "the reason"}], {})
        return _answer(200, [], {"results": self._results(events)})

    def _results(self, events: list[Any]) -> list[Any]:
        full = {"actions": [], "errors": [{"code": 1400, "message": "the answer is full"}]}
        return [self._result(event) if n < self._room else full for n, event in enumerate(events)]

    def _result(self, event: dict[str, Any]) -> dict[str, Any]:
        stamp = event["timestamp_ms"]
        action = {"type": "match", "ruleId": "r", "name": str(stamp), "priority": 1, "notify": False}
        return {"actions": [action]}

    def evaluated(self) -> list[float]:
        """The times of the events in batches that were not refused."""
        return [
            event["timestamp_ms"]
            for events in self.bodies
            if not any("refused" in event["fields"] for event in events)
            for event in events[: self._room]
        ]


def _answer(status: int, errors: list[Any], result: Any) -> httpx.Response:
    envelope = {"success": not errors, "errors": errors, "messages": [], "result": result}
    return httpx.Response(status, json=envelope)


def _sync(fake: Fake, events: list[Event]) -> list[EventResult]:
    with Client("http://s", "t", transport=httpx.MockTransport(fake)) as client:
        return list(client.evaluate_many("d", iter(events)))


def _async(fake: Fake, events: list[Event]) -> list[EventResult]:
    async def source() -> AsyncIterator[Event]:
        for event in events:
            yield event

    async def run() -> list[EventResult]:
        async with AsyncClient("http://s", "t", transport=httpx.MockTransport(fake)) as client:
            return [result async for result in client.evaluate_many("d", source())]

    return asyncio.run(run())


@pytest.fixture(params=[_sync, _async], ids=["sync", "async"])
def evaluate(request: pytest.FixtureRequest) -> Evaluate:
    return request.param


def events(count: int, *refused: int) -> list[Event]:
    return [Event({"refused": 1} if n in refused else {}, n) for n in range(1, count + 1)]


def names(results: list[EventResult]) -> list[str | int]:
    """The rule that fired at each event, or the code of its error."""
    return [result.errors[0].code if result.errors else result.actions[0].name for result in results]


def test_batches_hold_all_items_in_order_within_both_bounds() -> None:
    batches = Batches[bytes](len, events_max=4, bytes_max=30)
    given = [*[b"x"] * 9, *[b"y" * 28] * 3, b"z" * 98]
    found = [batch for item in given if (batch := batches.add(item))]
    found.append(batches.take())
    assert [item for batch in found for item in batch] == given
    assert [len(batch) for batch in found] == [4, 4, 2, 1, 1, 1]
    assert batches.take() == []
    assert [[*batches.add_all(given)], batches.take()] == [found[:-1], found[-1]]


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 20])
def test_batches_that_are_bounded_in_number_only_take_many_items_at_once(at_once: int) -> None:
    batches = Batches[int](None, events_max=3)
    given = [list(range(start, min(start + at_once, 20))) for start in range(0, 20, at_once)]
    found = [batch for items in given for batch in batches.add_all(items)]
    assert [*found, batches.take()] == [list(range(start, min(start + 3, 20))) for start in range(0, 20, 3)]


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [((15, 16, 15, 15, 16), [[15], [16], [15, 15], [16]]), ((15, 15, 16, 15), [[15, 15], [16], [15]])],
)
def test_a_batch_is_filled_to_the_byte(sizes: tuple[int, ...], batches: list[list[int]]) -> None:
    collected = Batches[int](int, bytes_max=30)
    found = [batch for size in sizes if (batch := collected.add(size))]
    assert [*found, collected.take()] == batches


def test_a_batch_is_within_what_a_service_takes_unless_it_is_told_otherwise() -> None:
    settings = Settings(data=Path("data"))
    assert settings.max_batch_events >= EVENTS_MAX
    # Some space for what stands between the events.
    assert settings.max_batch_body_bytes > BYTES_MAX + 2 * EVENTS_MAX


def test_every_event_has_one_result_in_order(evaluate: Evaluate) -> None:
    fake = Fake()
    count = EVENTS_MAX * 2 + 7
    assert names(evaluate(fake, events(count))) == [str(n) for n in range(1, count + 1)]
    assert [len(body) for body in fake.bodies] == [EVENTS_MAX, EVENTS_MAX, 7]


def test_without_events_nothing_is_sent(evaluate: Evaluate) -> None:
    fake = Fake()
    assert evaluate(fake, []) == []
    assert fake.bodies == []


def test_events_at_fault_are_found_and_the_others_evaluated_in_order(evaluate: Evaluate) -> None:
    fake = Fake()
    assert names(evaluate(fake, events(7, 3, 6))) == ["1", "2", 1001, "4", "5", 1001, "7"]
    assert fake.evaluated() == [1, 2, 4, 5, 7]
    assert len(set(fake.keys)) == len(fake.keys), "another body is another request"
    assert all(re.fullmatch("[0-9a-f]{32}", key) for key in fake.keys)


@pytest.mark.parametrize("code", [1000, 1001, 1003])
def test_a_fault_of_the_body_may_be_that_of_one_event(evaluate: Evaluate, code: int) -> None:
    assert names(evaluate(Fake(code=code), events(2, 1))) == [code, "2"]


def test_results_that_are_not_one_for_each_event_are_told(evaluate: Evaluate) -> None:
    class Short(Fake):
        def _results(self, events: list[Any]) -> list[Any]:
            return super()._results(events)[1:]

    with pytest.raises(ServiceError, match="answered 1 of 2 events"):
        evaluate(Short(), events(2))


def test_a_service_that_takes_no_events_at_all_is_not_asked_again_and_again(evaluate: Evaluate) -> None:
    fake = Fake(code=1200)
    with pytest.raises(ServiceError, match="1200"):
        evaluate(fake, events(4, 1))
    assert len(fake.bodies) == 1


def test_events_that_did_not_fit_into_an_answer_are_sent_again(evaluate: Evaluate) -> None:
    fake = Fake(room=3)
    assert names(evaluate(fake, events(8))) == [str(n) for n in range(1, 9)]
    assert fake.evaluated() == list(range(1, 9))
    assert [len(body) for body in fake.bodies] == [8, 5, 2]


def test_fields_may_be_json_already_and_integers_of_any_size() -> None:
    assert Event(msgspec.Raw(b'{"a":1}'), 5).json() == b'{"fields":{"a":1},"timestamp_ms":5}'
    huge = 10**40
    assert json.loads(Event({"a": huge}, 1_588_205_198_899.71).json()) == {
        "fields": {"a": huge},
        "timestamp_ms": 1_588_205_198_899.71,
    }


def test_records_are_sent_in_batches_each_with_a_key_and_what_became_of_each_is_given() -> None:
    sent: list[tuple[str, list[Any]]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        assert str(request.url) == "http://service/api/detectors/d/ingest?time=a.b+%26"
        lines = [json.loads(line) for line in request.content.splitlines()]
        sent.append((request.headers["Idempotency-Key"], lines))
        return _answer(200, [], {"accepted": len(lines) - 1, "refused": 1, "fired": 2, "errors": []})

    transport = httpx.MockTransport(answer)
    records = [{"n": number, "s": "\n"} for number in range(EVENTS_MAX + 5)]
    with Client("http://service", "t", transport=transport) as client:
        given = list(client.ingest("d", iter(records), time="a.b &"))
        assert list(client.ingest("d", [])) == []
        with pytest.raises(ServiceError, match=r"records\[1\].x"):
            list(client.ingest("d", [{}, {"x": float("nan")}]))
    assert [(one.accepted, one.fired) for one in given] == [(EVENTS_MAX - 1, 2), (4, 2)]
    assert [record for _, lines in sent for record in lines] == records
    assert len({key for key, _ in sent}) == len(sent) == 2
