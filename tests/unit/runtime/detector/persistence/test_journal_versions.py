"""What records contain, and what becomes of those of other programs, of limits and of kept answers."""

import json
from pathlib import Path
from typing import Any

import msgpack
import pytest

from engine.evaluation.operators.terms.clock import zones_version
from engine.evaluation.persistence.saved import OLDEST_VERSION
from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.detector.persistence import journal_entries as history
from engine.runtime.detector.persistence import replay
from engine.runtime.detector.persistence.detector_snapshot import SNAPSHOT_VERSION
from engine.runtime.detector.persistence.idempotency import (
    PAGE_VERSION,
    IdempotencyCache,
)
from engine.runtime.detector.persistence.journal_entries import (
    RECORD_VERSION,
    JournalRecord,
)
from engine.runtime.detector.persistence.replay import restore
from snapshots.errors import NewerFormat, OlderFormat
from snapshots.format.pages import Page
from snapshots.format.segment_reader import Record
from snapshots.format.snapshot_file import Snapshot
from snapshots.takeover.recovered import Recovered
from tests.unit.runtime.detector.persistence.journaled import LIMITS, Journaled


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


def test_limits_of_a_program_that_did_not_bound_the_values_of_an_event_do_not_bound_them() -> None:
    document = history.limits_document(LIMITS)
    assert history.limits_from(document) == LIMITS
    del document["event_values_max"]
    assert history.limits_from(document).event_values_max > 1_000 * LIMITS.event_values_max


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


def test_a_replay_with_other_time_zones_says_so_where_other_rules_fire() -> None:
    record = Record(7, RECORD_VERSION, b"", Path("journal-1"), 64)
    said = {}
    for zones in ("1999a", "", zones_version()):
        diverged = replay._Diverged()
        diverged.note(record, JournalRecord(1, 1, True, (), program="0.1", zones=zones))
        assert diverged.summary is not None
        said[zones] = diverged.summary.partition("evaluated them")[2]
    known = zones_version() or "an unknown version"
    assert said["1999a"] == f"; the time zones are of {known}, and were of 1999a"
    assert said[zones_version()] == ""
    # Records of programs before this one do not say of which version theirs were.
    old = msgpack.packb([1, 1, True, [], 0, "0.1", 5])
    assert history.decode(old).zones == ""


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


def test_what_an_older_program_wrote_is_refused() -> None:
    body = msgpack.packb([history.limits_document(LIMITS), OLDEST_VERSION - 1, {}])
    page = Page(PAGE_VERSION - 1, b"")
    for snapshot, pages, oldest in (
        (Snapshot(1, 1, SNAPSHOT_VERSION - 1, b""), (), SNAPSHOT_VERSION),
        (Snapshot(1, 1, SNAPSHOT_VERSION, body), (), OLDEST_VERSION),
        (None, (page,), PAGE_VERSION),
    ):
        with pytest.raises(OlderFormat, match=rf"version {oldest - 1}; .* versions? {oldest}\b"):
            restore(Recovered(snapshot, iter(()), pages=pages), IdempotencyCache(1, 1), LIMITS)


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


def test_a_rule_is_restored_as_it_was_written() -> None:
    journaled = Journaled()
    for condition in ("a  == 1 # one", "a == 2"):
        journaled.take(ops.add_rule("r", condition))
    assert [rule.source for rule in journaled.restored().detector.rules()] == ["a  == 1 # one", None]


def test_a_rule_is_restored_with_how_it_acts() -> None:
    journaled = Journaled()
    acting = {"timed": True, "every_secs": 0.3, "every_by": ["host"]}
    rule_id = json.loads(journaled.take(ops.add_rule("r", "a == 1", **acting)).result)["id"]
    journaled.take(ops.put_rules([ops.PutRule("other", "a == 2", every_secs=600, every_by=[])]))
    found = [(one.timed, one.every_secs, one.every_by) for one in journaled.restored().detector.rules()]
    assert found == [(True, 0.3, ("host",)), (False, 600, ())]
    journaled.take(ops.change_rule(rule_id, every_secs=0, timed=False))
    [rule, _] = journaled.restored().detector.rules()
    assert (rule.timed, rule.every_secs, rule.every_by) == (False, None, None)


def test_records_of_the_version_before_every_secs_are_read() -> None:
    journaled = Journaled()
    journaled.take(ops.add_rule("r", "a == 1"))
    record = msgpack.unpackb(journaled.records[0].payload)
    [put] = record[3]
    assert put[-3:] == [False, None, None]
    del put[-3:]
    journaled.records[0] = journaled.records[0]._replace(version=5, payload=msgpack.packb(record))
    assert journaled.restored().detector.rules() == journaled.detector.rules()


def test_records_of_the_version_without_shadow_rules_are_read() -> None:
    journaled = Journaled()
    journaled.take(ops.add_rule("r", "a == 1"))
    journaled.records[0] = journaled.records[0]._replace(version=3)
    assert [rule.name for rule in journaled.restored().detector.rules()] == ["r"]
