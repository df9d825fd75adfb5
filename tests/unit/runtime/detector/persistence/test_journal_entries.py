"""The journal's steps: a detector that takes them again answers as the one that took them first."""

import json
import random
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import settings

from engine.evaluation.detector import Detector
from engine.evaluation.wire.events import Done
from engine.evaluation.wire.records import Ingest
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.detector.active_detector import estimated_bytes
from engine.runtime.detector.persistence import journal_entries as history
from engine.runtime.detector.persistence.idempotency import (
    CachedAnswer,
    IdempotencyCache,
)
from engine.runtime.detector.persistence.journal_entries import (
    RECORD_VERSION,
    JournalRecord,
)
from engine.runtime.detector.persistence.replay import Diverged, Replay, restore
from engine.runtime.detector.persistence.replay_attempts import Poisoned
from engine.runtime.detector.persistence.uploads import Uploads
from snapshots.format.segment_reader import Record
from snapshots.takeover.recovered import Recovered
from tests.differential.modes import index_from
from tests.unit.runtime.detector.persistence.journaled import LIMITS, NOW_MS, Journaled, told

CONDITIONS = (
    "once a == 1",
    "per k once within 3s a == 1",
    "per k (a == 1 since b == 2)",
    "per k historically for 2s strong not a == 1",
    "historically not a == 3",
    "per k per b once a == 2",
    "a in $list or once within 1s b == 1",
)


def stored_answers(journaled: Journaled, keys: Collection[bytes]) -> dict[bytes, CachedAnswer]:
    """Return the answers that a repeat would get: the latest, for a key that came again."""
    return {answer.key: answer for answer in journaled.answers if answer.key in keys}


def event(drawn: random.Random, at_ms: float) -> dict[str, Any]:
    fields = {
        "a": drawn.randrange(4),
        "b": drawn.randrange(3),
        "k": drawn.choice((1, "1", True, 2, "x", 10**30)),
    }
    return {"fields": fields, "timestamp_ms": at_ms + drawn.choice((0, 0.125, -700, 400))}


def operations(drawn: random.Random, count: int, rule_ids: list[str]) -> Iterator[Operation]:
    at_ms = 0.0
    for number in range(count):
        at_ms += drawn.choice((0, 100, 900, 2500))
        key = drawn.choice(("", "", f"key {drawn.randrange(8)}"))
        context = {"vars": {"list": [1, 2]}} if drawn.random() < 0.3 else {}
        match drawn.randrange(12):
            case 0 | 1:
                yield ops.add_rule(f"rule {number}", drawn.choice(CONDITIONS))
            case 2 if rule_ids:
                change = {"name": f"new {number}", "enabled": drawn.random() < 0.6}
                if drawn.random() < 0.4:
                    change = {"condition": drawn.choice(CONDITIONS)}
                yield ops.change_rule(drawn.choice(rule_ids), **change)
            case 3 if rule_ids and drawn.random() < 0.4:
                yield ops.remove_rule(drawn.choice(rule_ids))
            case 4:
                # Refused in different ways: ahead of the present, no JSON, too many.
                body = json.dumps({"event": event(drawn, NOW_MS * 2)}).encode()
                yield drawn.choice(
                    (ops.evaluate(body, key), ops.evaluate(b"{", key), ops.change_rule("none"))
                )
            case 5 | 6:
                events = [event(drawn, at_ms + drawn.choice((0, 50))) for _ in range(drawn.randrange(7))]
                if events and drawn.random() < 0.4:
                    events[drawn.randrange(len(events))]["timestamp_ms"] = drawn.choice((NOW_MS * 3, -1e9))
                document = {"events": events, "context": context}
                if drawn.random() < 0.3:
                    records = [one["fields"] | {"t": at_ms + drawn.choice((0, 900, -1e9))} for one in events]
                    body = drawn.choice((b"[%b]", b"[%b")) % b",\n".join(
                        [json.dumps(one).encode() for one in records]
                    )
                    lines = drawn.choice((body, body[1:-1].replace(b",\n", b"\n"), b"7\n" + body[1:-1]))
                    named = drawn.choice((None, "t"))
                    yield ops.ingest(Ingest(lines, named, with_results=drawn.random() < 0.5), key)
                elif not key and drawn.random() < 0.4:
                    bodies = [json.dumps({"event": one, "context": context}).encode() for one in events]
                    yield ops.evaluate_lines(b"\n".join([*bodies, b"", b"{", b"[]"]))
                elif drawn.random() < 0.5 and "1" + "0" * 30 not in json.dumps(document):
                    yield ops.evaluate_batch(msgpack.packb(document), key, "msgpack")
                else:
                    yield ops.evaluate_batch(json.dumps(document).encode(), key)
            case _:
                yield ops.evaluate(
                    json.dumps({"event": event(drawn, at_ms), "context": context}).encode(), key
                )


@pytest.mark.parametrize("nodes", [1_000, 6])
@pytest.mark.parametrize("seed", range(min(25, settings.default.max_examples // 2)))
def test_a_restored_detector_answers_as_the_one_that_died(seed: int, nodes: int, monkeypatch) -> None:
    index_from(monkeypatch, nodes)
    drawn = random.Random(seed)
    journaled = Journaled()
    script = operations(drawn, 120, rule_ids := [])
    for number, operation in enumerate(script):
        answer = journaled.take(operation, number * 20_000_000)
        if operation.kind == ops.ADD_RULE and isinstance(answer, Done):
            rule_ids.append(json.loads(answer.result)["id"])
        if drawn.random() < 0.02:
            journaled.save()
        if number % 40 == 39:
            other = journaled.restored()
            assert other.detector.rules() == journaled.detector.rules()
            assert other.detector.clock_us == journaled.detector.clock_us
            now_us = number * 20_000_000
            for one in (journaled, other):
                one.answers.expire(now_us)
            # Those that have been kept for long enough may still be there, in either.
            certain = {
                key for key, at_us in journaled.answered_at_us.items() if now_us - at_us <= 600_000_000
            }
            assert stored_answers(other, certain) == stored_answers(journaled, certain)
            assert len(stored_answers(other, certain)) == len(certain) > 0
            # They go on together, and what the first is told is in its history.
            go_on_together(journaled, other, seed)


def go_on_together(first: Journaled, second: Journaled, seed: int) -> None:
    drawn = random.Random(seed)
    at_ms = (first.detector.clock_us or 0) / 1_000
    for _ in range(25):
        at_ms += drawn.choice((0, 300, 1000))
        operation = ops.evaluate(json.dumps({"event": event(drawn, at_ms)}).encode())
        assert first.take(operation) == second.take(operation)


def test_only_evaluations_are_told_as_events() -> None:
    """Events may be left to the next snapshot, by `journal_sync`; changes of rules never are."""
    journaled = Journaled()
    rule_id = json.loads(journaled.take(ops.add_rule("r", "a == 1")).result)["id"]
    journaled.take(ops.change_rule(rule_id, name="n"))
    journaled.take(ops.remove_rule(rule_id))
    assert not any(isinstance(step, history.EVALUATED) for step in told(journaled))
    changes = len(journaled.records)
    event = {"fields": {}, "timestamp_ms": 5}
    journaled.take(ops.evaluate(json.dumps({"event": event}).encode()))
    journaled.take(ops.evaluate_batch(json.dumps({"events": [event]}).encode()))
    journaled.take(ops.evaluate_batch(msgpack.packb({"events": [event]}), "", "msgpack"))
    journaled.take(ops.evaluate_lines(json.dumps({"event": event}).encode()))
    assert [isinstance(step, history.EVALUATED) for step in told(journaled)[changes:]] == [True] * 4


def test_events_for_which_an_answer_had_no_room_are_not_taken_again() -> None:
    journaled = Journaled()
    for number in range(20):
        journaled.take(ops.add_rule(f"rule {number}", "once a == 1 or not a == 1"))
    # Each event is answered by some 2 300 bytes.
    for kind in ("json", "lines"):
        events = [{"fields": {}, "timestamp_ms": number} for number in range(6)]
        if kind == "json":
            journaled.take(ops.evaluate_batch(json.dumps({"events": events}).encode()))
        else:
            bodies = [json.dumps({"event": event}).encode() for event in events]
            journaled.take(ops.evaluate_lines(b"\n".join(bodies)))
        (step,) = history.decode(journaled.records[-1].payload).entries
        assert step.refused == (1, 2, 3, 4, 5)
    other = journaled.restored()
    assert (other.detector.events_seen, other.detector.clock_us) == (2, 0)
    assert other.detector.dump() == journaled.detector.dump()


@pytest.mark.slow
def test_the_random_scripts_meet_the_bound_on_answers() -> None:
    met = 0
    for seed in range(25):
        journaled = Journaled()
        script = operations(random.Random(seed), 120, rule_ids := [])
        for number, operation in enumerate(script):
            answer = journaled.take(operation, number * 20_000_000)
            if operation.kind == ops.ADD_RULE and isinstance(answer, Done):
                rule_ids.append(json.loads(answer.result)["id"])
            met += isinstance(answer, Done) and b"resend it" in answer.result
        if met > 5:
            return
    pytest.fail(f"{met}")


def test_a_line_that_is_refused_only_when_it_is_taken_again_is_no_history() -> None:
    step = history.EvaluatedLines(b"{")
    with pytest.raises(Diverged, match="line was refused"):
        Replay(Detector(limits=LIMITS), IdempotencyCache(1, 1)).take(JournalRecord(None, 0, True, (step,)))


def test_a_history_that_leads_elsewhere_than_it_did_is_no_history() -> None:
    journaled = Journaled()
    journaled.take(ops.evaluate(b'{"event":{"fields":{},"timestamp_ms":5}}'))
    (step,) = history.decode(journaled.records[0].payload).entries
    for clock_us, seen in ((5_000, 2), (6_000, 1), (None, 1)):
        with pytest.raises(Diverged):
            Replay(Detector(limits=LIMITS), IdempotencyCache(1, 1)).take(
                JournalRecord(clock_us, seen, True, (step,))
            )
    # Without a journal of events it has to lead elsewhere.
    Replay(Detector(limits=LIMITS), IdempotencyCache(1, 1)).take(JournalRecord(9, 9, False, (step,)))


def test_a_record_that_cannot_be_taken_again_is_named_with_its_place() -> None:
    record = Record(7, RECORD_VERSION, b"no history", Path("folder/journal-1.rdj"), 64)
    with pytest.raises(Poisoned, match=r"journal-1\.rdj at 64: the record 7 "):
        restore(Recovered(None, iter([record]), ()), IdempotencyCache(1, 1), LIMITS)


def test_more_is_reserved_for_what_may_take_more_than_its_body() -> None:
    short = estimated_bytes(ops.evaluate(b"{}"), Uploads())
    long = [ops.evaluate(b"{}", "key"), ops.evaluate_batch(b"{}"), ops.add_rule("r", "a == 1")]
    assert short < 1_000
    assert all(estimated_bytes(operation, Uploads()) > 4_000 for operation in long)
