"""The form of the events makes no difference: one by one, as a batch, as msgpack, in lines."""

import json
from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from engine import Detector, Limits
from engine.evaluation.wire.events import Done, evaluate_batch_body, evaluate_body, evaluate_lines

RULES = ("per k once within 2s a == 1", "a in $list since b == 1", "historically not a == 2", "a == k")
VALUES = st.sampled_from([0, 1, 2, 1.0, True, None, "1", "\u00e4", [1, {"b": 1}], 2**63]) | st.floats(0, 3)
EVENTS = st.fixed_dictionaries(
    {
        "fields": st.dictionaries(st.sampled_from(["a", "b", "k"]), VALUES),
        # The last two are refused; the one before them may be late.
        "timestamp_ms": st.sampled_from([0, 1, 1_000, 1_500.5, 4_000, -10, -1e9, 8e15]),
    }
)


def new_detector() -> Detector:
    made = Detector(limits=Limits(late_ms_max=5_000), now_us=lambda: 10_000_000)
    for number, rule in enumerate(RULES):
        made.add_rule(name=rule, condition=rule, rule_id=f"{number:032}")
    return made


def one_by_one(detector: Detector, events: list[Any], context: Any) -> list[Any]:
    results = []
    for event in events:
        answer = evaluate_body(detector, json.dumps({"event": event} | context).encode())
        if isinstance(answer, Done):
            told = json.loads(answer.messages)
            results.append(json.loads(answer.result) | ({"messages": told} if told else {}))
        else:
            errors = [{"code": entry.code, "message": entry.message} for entry in answer.entries]
            results.append({"actions": [], "errors": errors})
    return results


def batch(detector: Detector, events: list[Any], context: Any) -> list[Any]:
    answer, _ = evaluate_batch_body(detector, json.dumps({"events": events} | context).encode())
    assert isinstance(answer, Done)
    return json.loads(answer.result)["results"]


def packed(detector: Detector, events: list[Any], context: Any) -> list[Any]:
    body = msgpack.packb({"events": events} | context)
    answer, _ = evaluate_batch_body(detector, body, "msgpack")
    assert isinstance(answer, Done)
    return json.loads(answer.result)["results"]


def lines(detector: Detector, events: list[Any], context: Any) -> list[Any]:
    bodies = [json.dumps({"event": event} | context).encode() for event in events]
    answer, _ = evaluate_lines(detector, b"\n".join(bodies))
    return [json.loads(one) for one in answer.result.split(b"\n")] if events else []


@given(
    st.lists(st.lists(EVENTS, max_size=5), max_size=4),
    st.sampled_from([{}, {"context": {}}, {"context": {"vars": {"list": [1, "1"]}}}]),
)
def test_each_form_gives_the_same_answers(batches: list[list[Any]], context: Any) -> None:
    ways = (one_by_one, batch, packed, lines)
    detectors = [new_detector() for _ in ways]
    for events in batches:
        first, *others = [
            way(detector, events, context) for way, detector in zip(ways, detectors, strict=True)
        ]
        assert len(first) == len(events)
        assert others == [first] * 3
    assert len({detector.dump() for detector in detectors}) == 1
