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
from engine.evaluation.dispatch import rule_set
from engine.evaluation.wire.events import Done
from engine.language.limits import Limits
from engine.language.text.parser import parse
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.detector import apply as apply_module
from engine.runtime.detector.persistence import detector_snapshot, replay
from engine.runtime.detector.persistence import journal_entries as history
from engine.runtime.detector.persistence.detector_snapshot import SNAPSHOT_VERSION
from engine.runtime.detector.persistence.idempotency import (
    PAGE_VERSION,
    CachedAnswer,
    IdempotencyCache,
    key_digest,
)
from engine.runtime.detector.persistence.journal_entries import (
    RECORD_VERSION,
    Diverged,
    JournalEntry,
    JournalRecord,
    Replay,
)
from engine.runtime.detector.persistence.replay import restore
from engine.runtime.detector.persistence.replay_attempts import Poisoned
from snapshots.errors import NewerFormat
from snapshots.format.pages import Page
from snapshots.format.segment_reader import Record
from snapshots.format.snapshot_file import Snapshot
from snapshots.takeover.recovered import Recovered
from tests.differential import fused

CONDITIONS = (
    "once a == 1",
    "per k once within 3s a == 1",
    "per k (a == 1 since b == 2)",
    "per k historically for 2s strong not a == 1",
    "historically not a == 3",
    "per k per b once a == 2",
    "a in $list or once within 1s b == 1",
)
NOW_MS = 100_000
LIMITS = Limits(keys_max=5, batch_events_max=6, answer_bytes_max=3_000)


class Journaled:
    """A detector that lives through operations, and what would be on the disk."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.detector = Detector(limits=limits, now_us=lambda: NOW_MS * 1_000)
        self.answers = IdempotencyCache(600_000_000, 1 << 20)
        self.records: list[Record] = []
        self.pages: list[Page] = []
        self.now_us = 0
        self.answered_at_us: dict[bytes, int] = {}
        """When the answers to keys were given, the last time."""
        self.snapshot: Snapshot | None = None

    def take(self, operation: Operation, now_us: int = 0) -> Any:
        self.now_us = now_us
        applied = apply_module.apply(self.detector, "d", self.answers, operation, now_us)
        if applied.entry is not None:
            self.tell(applied.entry)
            if operation.key:
                self.answered_at_us[key_digest(operation.key)] = now_us
        return applied.answer

    def tell(self, *told: JournalEntry) -> None:
        detector = self.detector
        verdicts = detector.verdicts.take()
        at = detector.clock_us, detector.events_seen
        one = JournalRecord(*at, True, told, self.now_us, "0.0.0", verdicts)
        payload = history.encode(one)
        self.records.append(Record(len(self.records) + 1, RECORD_VERSION, payload, Path("journal"), 0))

    def save(self) -> None:
        page = self.answers.begin_page(self.now_us)
        if page is not None:
            self.pages.append(Page(PAGE_VERSION, page.body()))
            self.answers.page_written(page)
        body = b"".join(detector_snapshot.pieces(detector_snapshot.take_snapshot(self.detector)))
        self.snapshot = Snapshot(1, len(self.records), SNAPSHOT_VERSION, body)

    def restored(self) -> "Journaled":
        after = 0 if self.snapshot is None else self.snapshot.sequence
        other = Journaled()
        recovered = Recovered(self.snapshot, self.records[after:], (), self.pages)
        restored = restore(recovered, other.answers, LIMITS)
        assert restored.diverged is None
        other.detector = restored.detector
        other.detector.live_at(lambda: NOW_MS * 1_000)
        return other


def stored_answers(journaled: Journaled, keys: Collection[bytes]) -> dict[bytes, CachedAnswer]:
    """Give the answers that a repeat would get: of a key that came again, the latest."""
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
                if not key and drawn.random() < 0.4:
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


@pytest.mark.parametrize("eager", [32, 2])
@pytest.mark.parametrize("seed", range(min(25, settings.default.max_examples // 2)))
def test_a_restored_detector_answers_as_the_one_that_died(seed: int, eager: int, monkeypatch) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(eager))
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


def test_events_that_were_refused_are_not_taken_again() -> None:
    journaled = Journaled()
    journaled.take(ops.add_rule("r", "once a == 1"))
    late = {"fields": {"a": 1}, "timestamp_ms": NOW_MS * 2}
    good = {"fields": {"a": 2}, "timestamp_ms": 5}
    journaled.take(ops.evaluate_batch(json.dumps({"events": [late, good, late]}).encode()))
    told = history.decode(journaled.records[-1].payload).entries
    assert [step.refused for step in told] == [(0, 2)]
    assert journaled.restored().detector.events_seen == 1


def test_a_batch_is_taken_again_as_what_it_was() -> None:
    journaled = Journaled()
    journaled.take(ops.add_rule("r", "once a == 1"))
    events = [{"fields": {"a": 1}, "timestamp_ms": 5}, {"fields": {}, "timestamp_ms": 1e14}]
    packed = msgpack.packb({"events": events})
    journaled.take(ops.evaluate_batch(packed, "", "msgpack"))
    (step,) = history.decode(journaled.records[-1].payload).entries
    assert (step.form, step.body, step.refused) == ("msgpack", packed, (1,))
    other = journaled.restored()
    assert other.detector.events_seen == 1
    assert other.take(ops.evaluate(b'{"event":{"fields":{},"timestamp_ms":6}}')).result != b'{"actions":[]}'


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


def test_the_random_scripts_meet_the_bound_on_answers() -> None:
    met = 0
    for seed in range(25):
        journaled = Journaled()
        script = operations(random.Random(seed), 120, rule_ids := [])
        for number, operation in enumerate(script):
            answer = journaled.take(operation, number * 20_000_000)
            if operation.kind == ops.ADD_RULE and isinstance(answer, Done):
                rule_ids.append(json.loads(answer.result)["id"])
            met += isinstance(answer, Done) and b"reached its limit" in answer.result
        if met > 5:
            return
    pytest.fail(f"{met}")


def told(journaled: Journaled) -> list[JournalEntry]:
    return [step for record in journaled.records for step in history.decode(record.payload).entries]


def test_lines_are_taken_again_but_for_those_that_were_refused() -> None:
    journaled = Journaled()
    journaled.take(ops.add_rule("r", "once $v == 1"))
    good = b'{"event":{"fields":{},"timestamp_ms":5},"context":{"vars":{"v":1}}}'
    late = b'{"event":{"fields":{},"timestamp_ms":1e14}}'
    lines = b"\n".join([b" ", b"{", good, b"", late, b"[]", b'{"event":{"fields":{},"timestamp_ms":6}}\r'])
    results = journaled.take(ops.evaluate_lines(lines)).result.split(b"\n")
    assert [len(json.loads(one)["actions"]) for one in results] == [0, 1, 0, 0, 1]
    (step,) = history.decode(journaled.records[-1].payload).entries
    assert (step.lines, step.refused) == (lines, (0, 2, 3))
    other = journaled.restored()
    assert (other.detector.events_seen, other.detector.clock_us) == (2, 6_000)
    assert other.take(ops.evaluate(b'{"event":{"fields":{},"timestamp_ms":6}}')).result != b'{"actions":[]}'


def test_a_line_that_is_refused_only_when_it_is_taken_again_is_no_history() -> None:
    step = history.EvaluatedLines(b"{")
    with pytest.raises(Diverged, match="line was refused"):
        Replay(Detector(limits=LIMITS), IdempotencyCache(1, 1)).take(JournalRecord(None, 0, True, (step,)))


def test_a_record_of_version_1_is_taken_as_it_was_written() -> None:
    payload = (Path(__file__).parent / "golden" / "record_1.msgpack").read_bytes()
    told = history.decode(payload).entries
    assert [step.form for step in told if isinstance(step, history.EvaluatedBatch)] == ["json", "json"]
    record = Record(1, 1, payload, Path("journal"), 0)
    answers = IdempotencyCache(600_000_000, 1 << 20)
    detector = restore(Recovered(None, iter([record]), ()), answers, LIMITS).detector
    assert (detector.clock_us, detector.events_seen) == (7_000, 4)
    assert [rule.name for rule in detector.rules()] == ["r"]
    assert {answer.key for answer in answers} == {key_digest("one"), key_digest("two")}


@pytest.mark.parametrize(
    "operation",
    [
        ops.rules(),
        ops.rule("none"),
        ops.change_rule("none", name="x"),
        ops.evaluate(b"{"),
        ops.evaluate(b'{"event":{"fields":{},"timestamp_ms":1e15}}'),
        ops.evaluate_batch(b'{"events":[]}'),
        ops.evaluate_batch(b'{"events":[]}', "", "msgpack"),
        ops.evaluate_lines(b""),
        ops.evaluate_lines(b"{\n[]\n"),
        ops.evaluate_batch(msgpack.packb({"events": []}), "", "msgpack"),
        ops.evaluate_batch(b'{"events":[{"fields":{},"timestamp_ms":1e15}]}'),
        ops.add_rule("r", "a =="),
    ],
)
def test_what_changes_nothing_is_not_told(operation: Operation) -> None:
    journaled = Journaled()
    journaled.take(operation)
    assert not journaled.records


def test_an_empty_change_of_a_rule_is_not_told_and_one_to_an_equal_number_is() -> None:
    journaled = Journaled()
    rule_id = json.loads(journaled.take(ops.add_rule("r", "a == 1")).result)["id"]
    journaled.take(ops.change_rule(rule_id))
    assert len(journaled.records) == 1
    journaled.take(ops.change_rule(rule_id, condition="a == 1.0"))
    (rule,) = journaled.restored().detector.rules()
    assert repr(rule.condition.value) == "1.0"


def test_limits_that_changed_hold_for_what_comes_after() -> None:
    journaled = Journaled(Limits(keys_max=5))
    journaled.take(ops.add_rule("r", "per k once a == 1"))
    at = iter(range(100))

    def see(key: int, value: int) -> Any:
        fields = {"k": key, "a": value}
        return journaled.take(
            ops.evaluate(json.dumps({"event": {"fields": fields, "timestamp_ms": next(at)}}).encode())
        )

    for key in range(5):
        see(key, 1)
    fewer = Limits(keys_max=2)
    journaled.detector = history.under_limits(journaled.detector, fewer)
    journaled.tell(history.LimitsSet(history.limits_document(fewer)))
    for key in range(5, 8):
        see(key, 1)
    other = journaled.restored()
    assert other.detector.limits == fewer
    assert other.detector.state.live == journaled.detector.state.live == 2


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


def test_a_record_needs_a_newer_program_if_any_of_its_rules_is_a_shadow() -> None:
    plain, shadow = (history.RulePut("1" * 32, "r", b"", True, False, 1, shadow=one) for one in (False, True))
    assert history.version_of((plain, shadow)) == history.version_of((shadow, plain)) == RECORD_VERSION
    assert history.version_of((plain, plain)) == history.version_of(()) == RECORD_VERSION - 1
    assert history.RulePut("1" * 32, "r", b"", True, False, 1).shadow is False


def test_more_is_reserved_for_what_may_take_more_than_its_body() -> None:
    short = history.estimated_bytes(ops.evaluate(b"{}"))
    long = [ops.evaluate(b"{}", "key"), ops.evaluate_batch(b"{}"), ops.add_rule("r", "a == 1")]
    assert short < 1_000
    assert all(history.estimated_bytes(operation) > 4_000 for operation in long)


def test_a_record_is_arrays_within_arrays() -> None:
    entry = history.Evaluated(b"{}", answer=history.GivenAnswer(b"k", b"r", b"m"))
    record = msgpack.unpackb(history.encode(JournalRecord(1, 1, True, (entry,))))
    assert record[:4] == [1, 1, True, [["evaluated", b"{}", None, [b"k", b"r", b"m"]]]]


def test_of_records_at_which_other_rules_fire_the_first_is_named_and_all_are_counted() -> None:
    diverged = replay._Diverged()
    assert diverged.summary is None
    for sequence in (7, 8):
        record = Record(sequence, RECORD_VERSION, b"", Path("journal-1"), 64)
        diverged.note(record, JournalRecord(1, 1, True, (), program="0.1"))
        if sequence == 7:
            first = diverged.summary
            assert first is not None
            assert first.startswith("journal-1 at 64: at the events of record 7, ")
    assert diverged.summary == f"{first}; the same holds for 2 records in all"


def test_what_a_newer_program_wrote_is_refused() -> None:
    record = Record(7, RECORD_VERSION + 1, b"", Path("journal"), 64)
    with pytest.raises(NewerFormat, match=f"at 64.*version {RECORD_VERSION + 1}"):
        restore(Recovered(None, iter([record]), ()), IdempotencyCache(1, 1), LIMITS)
    with pytest.raises(NewerFormat, match=f"answers.*version {PAGE_VERSION + 1}"):
        restore(
            Recovered(None, iter(()), pages=(Page(PAGE_VERSION + 1, b""),)), IdempotencyCache(1, 1), LIMITS
        )
    with pytest.raises(NewerFormat, match=f"version {SNAPSHOT_VERSION + 1}"):
        restore(
            Recovered(Snapshot(1, 1, SNAPSHOT_VERSION + 1, b""), iter(()), ()), IdempotencyCache(1, 1), LIMITS
        )


def test_a_snapshot_of_a_detector_alone_takes_the_limits_that_are_set() -> None:
    # As they were before there was a journal.
    golden = Path(__file__).parents[3] / "evaluation" / "persistence" / "golden" / "state_2_few.msgpack"
    recovered = Recovered(Snapshot(1, 1, 2, golden.read_bytes()), iter(()), ())
    detector = restore(recovered, IdempotencyCache(1, 1), LIMITS).detector
    assert detector.limits == LIMITS
    assert len(detector.rules()) > 5


@pytest.mark.parametrize("operation", [ops.evaluate, ops.evaluate_batch])
def test_a_repeat_has_the_first_answer_and_changes_nothing(operation: Any) -> None:
    journaled = Journaled()
    journaled.take(ops.add_rule("r", "a == 1 and not once b == 1"))
    one = {"fields": {"a": 1, "b": 0}, "timestamp_ms": 5}
    body = json.dumps({"event": one} if operation is ops.evaluate else {"events": [one]}).encode()
    first = journaled.take(operation(body, "key"))
    journaled.take(ops.evaluate(b'{"event":{"fields":{"b":1},"timestamp_ms":6}}'))
    for again in (journaled, journaled.restored()):
        before = len(again.records), again.detector.events_seen
        assert again.take(operation(body, "key")) == first
        assert (len(again.records), again.detector.events_seen) == before
        assert again.take(operation(body, "another")) != first
        other_body = again.take(operation(body + b" ", "key"))
        assert [entry.code for entry in other_body.entries] == [1006]


def test_a_refusal_is_not_kept_for_a_repeat() -> None:
    journaled = Journaled()
    journaled.take(ops.evaluate(b"{", "key"))
    assert isinstance(journaled.take(ops.evaluate(b'{"event":{"fields":{},"timestamp_ms":5}}', "key")), Done)


def test_an_answer_is_kept_for_its_time_and_no_more_than_there_is_room() -> None:
    journaled = Journaled()
    body = b'{"event":{"fields":{},"timestamp_ms":5}}'
    journaled.take(ops.evaluate(body, "key"), 0)
    journaled.take(ops.evaluate(body, "key"), 600_000_000)
    assert journaled.detector.events_seen == 1
    journaled.take(ops.evaluate(body, "key"), 600_000_001)
    assert journaled.detector.events_seen == 2
    journaled.answers._bytes_max = 1
    full = journaled.take(ops.evaluate(body, "other"), 600_000_001)
    assert [entry.code for entry in full.entries] == [1401]
    assert journaled.detector.events_seen == 2
    journaled.take(ops.evaluate(body, "other"), 1_300_000_000)
    assert journaled.detector.events_seen == 3


def test_a_bound_that_changes_verdicts_did_not_hold_before_it_was_there() -> None:
    """A journal that an earlier version wrote leads where it led."""
    document = dict(history.limits_document(Limits()))
    assert history.limits_from(document) == Limits()
    del document["pattern_event_bytes_max"]
    assert history.limits_from(document).pattern_event_bytes_max > 10**15


def test_a_rule_is_restored_as_it_was_written_and_one_of_an_older_program_as_its_canonical_text() -> None:
    journaled = Journaled()
    for condition in ("a  == 1 # one", "a == 2"):
        journaled.take(ops.add_rule("r", condition))
    assert [rule.source for rule in journaled.restored().detector.rules()] == ["a  == 1 # one", None]
    clock_us, events_seen, complete, told, *rest = msgpack.unpackb(journaled.records[0].payload)
    old = msgpack.packb([clock_us, events_seen, complete, [told[0][:-3]], *rest])
    assert old != journaled.records[0].payload
    journaled.records[0] = journaled.records[0]._replace(payload=old)
    [first, _] = journaled.restored().detector.rules()
    assert (first.source, first.condition) == (None, parse("a == 1"))
