import json
import re
from typing import Any

import pytest

from api.cli.client.service import Service, ServiceError
from api.cli.recordings.reading import RecordedEvent
from api.cli.replaying import batches as subject
from api.cli.replaying.batches import Batches, send
from api.cli.replaying.firings import Report


def events(count: int, text: bytes = b"{}") -> list[RecordedEvent]:
    return [RecordedEvent("e", n, {}, n * 1000, text) for n in range(1, count + 1)]


class FakeService(Service):
    """Evaluates nothing: events with the field `refused` make it refuse their whole batch."""

    def __init__(self, code: int = 1001) -> None:
        self.bodies: list[Any] = []
        self.keys: list[str] = []
        self._code = code

    def call(self, method: str, path: str, body: bytes | None = None, *, key: str = "") -> Any:
        assert (method, path) == ("POST", "/api/detectors/d/evaluate/batch")
        assert body is not None
        document = json.loads(body)
        self.bodies.append(document)
        self.keys.append(key)
        if any("refused" in event["fields"] for event in document["events"]):
            raise ServiceError(f"{self._code} the reason", self._code)
        return {"results": [self._result(event["fields"]) for event in document["events"]]}

    def _result(self, fields: dict[str, Any]) -> dict[str, Any]:
        action = {"type": "match", "ruleId": "r", "name": "rule", "priority": 1, "notify": False}
        late = [{"code": 2001, "message": "late"}] if "late" in fields else []
        return {"actions": [action] if "fires" in fields else [], "messages": late}


def test_batches_hold_all_events_in_order_within_both_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "EVENTS_MAX", 4)
    monkeypatch.setattr(subject, "BYTES_MAX", 30)
    given = [*events(9), *events(3, b'{"a":"' + b"x" * 20 + b'"}'), *events(1, b'{"a":"' + b"x" * 90 + b'"}')]
    found: list[list[RecordedEvent]] = []
    batches = Batches(found.append)
    for event in given:
        batches.add(event)
    batches.flush()
    assert [event for batch in found for event in batch] == given
    assert [len(batch) for batch in found] == [4, 4, 2, 1, 1, 1]


def test_what_has_been_collected_is_handed_over_once() -> None:
    found: list[list[RecordedEvent]] = []
    batches = Batches(found.append)
    batches.flush()
    batches.add(events(1)[0])
    batches.flush()
    batches.flush()
    assert found == [events(1)]


def test_times_go_out_in_milliseconds_to_the_microsecond() -> None:
    service = FakeService()
    times_us = [1_588_205_198_899_710, 1_588_205_198_899_000, 0, -1_500, 8_640_000_000_000_000_000]
    send(service, "d", [RecordedEvent("e", 1, {}, time_us, b"{}") for time_us in times_us], Report())
    sent = [event["timestamp_ms"] for event in service.bodies[0]["events"]]
    assert sent == [1588205198899.71, 1588205198899, 0, -1.5, 8640000000000000]
    assert [round(sent_ms * 1000) for sent_ms in sent] == times_us


def test_events_at_fault_are_found_and_the_others_evaluated_in_order() -> None:
    service, report = FakeService(), Report()
    batch = events(7, b'{"fires":1}')
    batch[2] = batch[2]._replace(text=b'{"refused":1}')
    batch[5] = batch[5]._replace(text=b'{"refused":1}')
    send(service, "d", batch, report)
    evaluated = [
        event["timestamp_ms"]
        for body in service.bodies
        if not any("refused" in event["fields"] for event in body["events"])
        for event in body["events"]
    ]
    assert evaluated == [1, 2, 4, 5, 7]
    assert len(set(service.keys)) == len(service.keys), "another body is another request"
    assert all(re.fullmatch("[0-9a-f]{32}", key) for key in service.keys)
    assert (report.events, report.refused) == (7, {1001: 2})
    assert report.refusals() == ["2 of 7 events refused with 1001; first e, line 3: the reason"]


def test_a_service_that_takes_no_events_at_all_is_not_asked_again_and_again() -> None:
    service = FakeService(code=1200)
    with pytest.raises(ServiceError, match="1200"):
        send(service, "d", events(4, b'{"refused":1}'), Report())
    assert len(service.bodies) == 1


def test_the_report_tells_count_and_first_place_of_rules_that_fired_and_of_those_that_did_not() -> None:
    report = Report()
    fired = [e._replace(text=b'{"fires":1,"late":1}') for e in events(5)[2:]]
    send(FakeService(), "d", [*events(2), *fired], report)
    assert report.rows([("q", "silent"), ("r", "rule")]) == [
        ("silent", "0", "", ""),
        ("rule", "3", "1970-01-01T00:00:00.003Z", "e, line 3"),
    ]
    assert report.remarks() == ["message 2001, 3 times; first e, line 3: late"]
