"""A PATCH with `history: keep`: what it keeps, what it says, and what the journal has of it."""

import json
from typing import Any

import pytest

from engine import Detector, parse
from engine.evaluation.rule_book.changes.keeping import begins_anew
from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests import operations as ops
from engine.runtime.detector.apply import apply
from engine.runtime.detector.persistence.idempotency import IdempotencyCache
from engine.runtime.detector.persistence.journal_entries import JournalRecord, decode, encode
from engine.runtime.detector.persistence.replay import Replay

BEFORE = "count(a == 1) within 1h >= 2 and per k (once within 30d b == 1)"


@pytest.mark.parametrize(
    ("before", "after", "anew"),
    [
        ("count(a == 1) within 10m >= 5", "count(a == 1) within 5m < 4", []),
        ("count(a == 1) within 10m >= 5", "count(a == 1) within 11m >= 5", ["count(a == 1) within 11m >= 5"]),
        ("count(a == 1) within 10m >= 5", "count(a == 1) within 10m > 5", ["count(a == 1) within 10m > 5"]),
        ("sum(x) within 1h > 5", "sum(x) within 1h < 7", []),
        ("sum(x) within 1h > 5", "sum(x) within 30m > 5", ["sum(x) within 30m > 5"]),
        ("historically for 5m strong a == 1", "historically for 1h strong a == 1", []),
        (
            "historically for 0s strong a == 1",
            "historically for 1s strong a == 1",
            ["historically for 1s strong a == 1"],
        ),
        ("historically for 5m a == 1", "historically for 1h a == 1", ["historically for 1h a == 1"]),
        ("once a == 1", "per k (once a == 1)", ["once a == 1"]),
        ("once a == 1", "once a == true", ["once a == true"]),
        ("once once a == 1", "once (once a == 1 and b == 1)", ["once (once a == 1 and b == 1)"]),
        ("x > last(x) + 1", "x < 3 * last(x)", []),
        (
            "per k where once a == 1 (once b == 1)",
            "per k where once a == 2 (once b == 1)",
            ["once a == 2", "once b == 1"],
        ),
    ],
)
def test_what_begins_anew(before: str, after: str, anew: list[str]) -> None:
    assert begins_anew(parse(before), parse(after)) == anew


@pytest.mark.parametrize("history", ["keep", None])
def test_a_change_says_what_begins_anew_and_is_replayed(history: Any) -> None:
    detector, answers, entries = Detector(), IdempotencyCache(0, 0), []

    def take(operation: ops.Operation) -> Any:
        applied = apply(detector, "d", answers, operation, 0)
        assert isinstance(applied.answer, Done), applied.answer
        entries.extend([] if applied.entry is None else [applied.entry])
        return applied.answer

    rule_id = json.loads(take(ops.add_rule("r", BEFORE)).result)["id"]
    event = json.dumps({"event": {"timestamp_ms": 1, "fields": {"a": 1, "b": 1, "k": 1}}}).encode()
    take(ops.evaluate(event))
    changed = take(ops.change_rule(rule_id, condition=BEFORE + " and not previous c == 1", history=history))
    said = [message["message"] for message in json.loads(changed.messages)]
    kept = "the history of the rule is kept, except that of `previous c == 1`"
    assert said == [
        kept if history else "the condition is a different one, so the rule's history begins anew"
    ]
    fired = json.loads(take(ops.evaluate(event)).result)["actions"]
    assert bool(fired) is (history == "keep")
    record = encode(JournalRecord(None, 0, False, tuple(entries)))
    replay = Replay(Detector(), IdempotencyCache(0, 0))
    replay.take(decode(record))
    assert replay.detector.live[rule_id].births == detector.live[rule_id].births
    loaded = Detector.load(detector.dump(), Detector.STATE_VERSION)
    assert loaded.live[rule_id].births == detector.live[rule_id].births
