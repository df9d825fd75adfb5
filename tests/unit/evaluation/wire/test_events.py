"""From bodies to answers: the bytes that the envelope contains."""

import json

import msgspec
import pytest

from engine import Detector, Limits
from engine.evaluation.wire.batches import decode_batch
from engine.evaluation.wire.decoding import decode_evaluate
from engine.evaluation.wire.events import Answer, Done, Refused, evaluate_batch_body, evaluate_body
from engine.language.diagnostics import Entry, Refusal


@pytest.fixture
def detector() -> Detector:
    made = Detector(limits=Limits(batch_events_max=3, late_ms_max=1_000))
    made.add_rule(name="r", condition="once a == 1 and (b == 1 or $v == 1)", rule_id="0" * 32)
    return made


ACTION = {"type": "match", "ruleId": "0" * 32, "name": "r", "priority": 1, "notify": False}


def body(**document) -> bytes:
    return json.dumps(document).encode()


def event(timestamp_ms: float, **fields) -> dict:
    return {"fields": fields, "timestamp_ms": timestamp_ms}


def test_an_evaluation_gives_its_actions_and_messages_as_json(detector):
    answer = evaluate_body(detector, body(event=event(0, a=1, b=1)))
    assert isinstance(answer, Done)
    assert (json.loads(answer.result), json.loads(answer.messages)) == ({"actions": [ACTION]}, [])
    late = evaluate_body(detector, body(event=event(-1), context={"vars": {"v": 1}}))
    assert isinstance(late, Done)
    assert json.loads(late.result) == {"actions": [ACTION]}
    assert [entry["code"] for entry in json.loads(late.messages)] == [2001]


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (b"{", 1000),
        (body(event=event("x")), 1001),
        (body(event=event(8.64e15 + 1)), 1001),
        (body(event=event(-8.64e15 - 1)), 1001),
        (body(event=event(10**400)), 1001),
        (body(event=event(0), context={}, extra=1), 1001),
        (body(event=event(0) | {"extra": 1}), 1001),
        (body(event=event(0), context={"extra": 1}), 1001),
        (body(event=event(-2_000)), 1402),
    ],
)
def test_a_refused_event_changes_nothing(detector, document, code):
    detector.evaluate({}, 0)
    before = detector.dump()
    answer = evaluate_body(detector, document)
    assert isinstance(answer, Refused)
    assert answer.entries[0].code == code
    assert detector.dump() == before


def test_a_time_out_of_range_is_told_beside_other_defects(detector):
    answer, _ = evaluate_batch_body(detector, body(events=[event(9e15), event(0) | {"more": 1}]))
    assert [entry.message for entry in answer.entries] == [
        "events[0].timestamp_ms: expected a number from -8.64e15 to 8.64e15, got 9000000000000000.0",
        "events[1].more: unknown member",
    ]


@pytest.mark.parametrize("timestamp_ms", [8.64e15, -8.64e15, 8640000000000000, 0, -0.0, 1e3, 0.0005])
def test_timestamps_up_to_the_bound_are_taken(timestamp_ms):
    assert isinstance(evaluate_body(Detector(), body(event=event(timestamp_ms))), Done)


def test_a_batch_answers_each_event_in_order_and_goes_on_past_a_refused_one(detector):
    events = [event(5_000, a=1, b=1), event(0, a=1), event(4_999, b=1)]
    answer = evaluate_batch_body(detector, body(events=events))[0]
    assert isinstance(answer, Done)
    first, second, third = json.loads(answer.result)["results"]
    assert first == {"actions": [ACTION]}
    assert second["actions"] == []
    assert [entry["code"] for entry in second["errors"]] == [1402]
    assert third["actions"] == [ACTION]
    assert [entry["code"] for entry in third["messages"]] == [2001]


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (body(events=[event(0)] * 4), 1400),
        (body(events={}), 1001),
        (body(events=[event(0), event(None)]), 1001),
        (body(events=[event(0), event(9e15)]), 1001),
        (b"[]", 1001),
        (b"", 1000),
    ],
)
def test_a_batch_that_is_refused_as_a_whole_evaluates_nothing(detector, document, code):
    answer, _ = evaluate_batch_body(detector, document)
    assert isinstance(answer, Refused)
    assert answer.entries[0].code == code
    assert detector.events_seen == 0


def test_an_empty_batch_has_no_results(detector):
    assert evaluate_batch_body(detector, body(events=[])) == (Done(b'{"results":[]}'), ())


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"events": [], "more": 1}, "more"),
        ({"events": [event(0) | {"more": 1}]}, "events[0].more"),
        ({"events": [], "context": {"more": 1}}, "context.more"),
    ],
)
def test_a_member_of_a_batch_that_is_unknown_is_refused_by_its_place(detector, document, place):
    answer, _ = evaluate_batch_body(detector, body(**document))
    assert answer == Refused((Entry(1001, f"{place}: unknown member"),))


@pytest.mark.parametrize("stamp", [8.64e15, -8.64e15])
@pytest.mark.parametrize("fields", [{}, {"a": [1]}], ids=["flat", "nested"])
@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_the_first_and_the_last_time_may_be_those_of_a_batch(stamp, fields, form):
    encode = msgspec.json.encode if form == "json" else msgspec.msgpack.encode

    def sent(*stamps: float) -> bytes:
        return encode({"events": [{"fields": fields, "timestamp_ms": each} for each in stamps]})

    assert [event.timestamp_ms for event in decode_batch(sent(stamp, 0), Limits(), form).events] == [stamp, 0]
    with pytest.raises(Refusal) as refused:
        decode_batch(sent(0, stamp * 1.1, stamp), Limits(), form)
    said = f"events[1].timestamp_ms: expected a number from -8.64e15 to 8.64e15, got {stamp * 1.1}"
    assert refused.value.entries == (Entry(1001, said),)


@pytest.mark.parametrize("stamp", [8.64e15, -8.64e15])
def test_the_first_and_the_last_time_may_be_those_of_an_event_whose_fields_nest(stamp):
    def sent(at: float) -> bytes:
        return body(event=event(at, a=[1]))

    assert decode_evaluate(sent(stamp), Limits()).event.timestamp_ms == stamp
    with pytest.raises(Refusal) as refused:
        decode_evaluate(sent(stamp * 1.1), Limits())
    said = f"event.timestamp_ms: expected a number from -8.64e15 to 8.64e15, got {stamp * 1.1}"
    assert refused.value.entries == (Entry(1001, said),)


def test_an_answer_is_sent_to_the_front_end_as_its_kind_and_its_parts():
    answers = [Done(b"[1]"), Refused((Entry(1400, "full"),))]
    encoded = msgspec.msgpack.encode(answers)
    assert msgspec.msgpack.decode(encoded) == [["Done", b"[1]", b"[]", b""], ["Refused", [[1400, "full"]]]]
    assert msgspec.msgpack.decode(encoded, type=list[Answer]) == answers
