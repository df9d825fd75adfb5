"""Reads that fail, wherever: the detector lives on, in the state that it would have without them."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from engine.evaluation.inspecting.states import StateAsked
from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import Reply
from engine.runtime.contract.requests.operations import Operation, PutRule
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.detector.taking_over import ReadOnlyDetector
from snapshots.files import RealFiles
from tests.local_runtime.owners import Owners
from tests.local_runtime.service import local_service

PLACES = ("engine/evaluation/", "engine/language/", "engine/patterns/", "detector/apply.py")
"""Where exceptions are planted: what a read passes."""
TRIED_MAX = 60
"""The most calls of one read that are made to fail, spread evenly."""

IDS = ("1" * 32, "2" * 32)
RULE, DRAFT = "a" * 32, "b" * 32
RULES = (
    "per user (count(a == 1) within 1m >= 2)",
    'text matches "x+y"',
    "sum(b) within 1m > 5",
    "previous a == 1",
)


class Planted(Exception):
    pass


@contextmanager
def failing_at(call: int, error: type[Exception] = Planted) -> Iterator[list[int]]:
    """Have the call with this number fail, of those that are made within this context; give their number."""
    made = [0]

    def trace(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and any(place in frame.f_code.co_filename for place in PLACES):
            made[0] += 1
            if made[0] == call:
                raise error("planted")

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield made
    finally:
        sys.settrace(before)


def body(time_s: int, **fields: Any) -> bytes:
    return json.dumps({"event": {"fields": fields, "timestamp_ms": 1_000 * time_s}}).encode()


def batch(time_s: int) -> bytes:
    events = [{"fields": {"user": "ada", "a": 1}, "timestamp_ms": 1_000 * time_s}]
    return json.dumps({"events": 2 * events}).encode()


EVENT = body(3, user="ada", a=1, b=9, text="axxyb")
MSGPACK = b"\x81\xa6events\x91\x82\xa6fields\x81\xa1a\x01\xactimestamp_ms\xcd\x0b\xb8"

READS: dict[str, list[Operation]] = {
    ops.DRY_RUN: [ops.dry_run(EVENT)],
    ops.DRY_RUN_EXPLAINED: [ops.dry_run(EVENT, explained=True)],
    ops.DRY_RUN_BATCH: [ops.dry_run_batch(batch(3))],
    ops.DRY_RUN_MSGPACK: [ops.dry_run_batch(MSGPACK, "msgpack")],
    ops.EXPLAIN: [ops.explain(EVENT)],
    ops.STATE: [
        *(ops.state(StateAsked(about=about)) for about in ("all", "keys", "seen", "nodes", "rules", "costs")),
        ops.state(StateAsked(about="rule", rule_id=RULE, key={"user": "ada"})),
    ],
    ops.FIRINGS: [ops.firings(None), ops.firings(0)],
    ops.TIMELINE: [ops.timeline(RULE, {"user": "ada"}, 0)],
    ops.COMPARISON: [ops.comparison(RULE), ops.comparison(RULE, after=0)],
    ops.RULES: [ops.rules()],
    ops.RULE: [ops.rule(RULE)],
    ops.VERSIONS: [ops.versions(RULE)],
    ops.RELATIONS: [ops.relations()],
    ops.PUT_RULES_DRY: [ops.put_rules([PutRule("new", "a == 2"), PutRule("rule", "a == 3")], dry_run=True)],
    ops.RELATION: [ops.relation("known", limit=1)],
}


def test_all_reads_are_tried():
    assert READS.keys() == ops.READS


Made = Callable[[str], OperationExecutor]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Gives workers with equal detectors, which have seen a few events."""

    def make(detector_id: str) -> OperationExecutor:
        owners = Owners(tmp_path, detector_id, journal_sync="off")
        actor, detector = owners.actor, owners.detector
        detector.add_rule("rule", RULES[0], rule_id=RULE)
        for number, rule in enumerate(RULES[1:]):
            detector.add_rule(rule, rule, rule_id=str(number) * 32)
        detector.put_relation("known", [("a", 1), ("b", 2)], 0)
        detector.add_rule("draft", "per user (a == 1)", rule_id=DRAFT, shadow=True, draft_of=RULE)
        for time_s in (1, 2):
            actor.handle([ops.evaluate(body(time_s, user="ada", a=1, b=1, text="xy"))])
        return actor

    return make


def untimed(reply: Reply) -> Reply:
    """A reply without the times that it took."""
    reply.took = None
    return reply


def kept(actor: OperationExecutor) -> bytes:
    return actor._the_active().detector.dump()


# To close a generator calls it, too. Of what is raised there, Python only warns.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "operation", [one for each in READS.values() for one in each], ids=lambda one: one.kind
)
def test_a_read_that_fails_at_any_call_is_one_internal_error_and_changes_nothing(made, operation):
    actor, twin = made(IDS[0]), made(IDS[1])
    active, before = actor._the_active(), kept(actor)
    (whole,) = twin.handle([operation]).answers
    assert isinstance(whole, Done), whole
    with failing_at(0) as calls:
        actor.handle([operation])
    failed = 0
    for call in range(1, calls[0] + 1, max(1, calls[0] // TRIED_MAX)):
        with failing_at(call):
            reply = actor.handle([ops.rules(), operation, ops.rules()])
        assert actor._the_active() is active
        assert kept(actor) == before
        if reply.crash is None:
            # It was made in a batch before it, or what failed was not needed.
            continue
        failed += 1
        assert not reply.crash.lost
        assert "planted" in reply.crash.detail
        assert len(reply.answers) <= 2
    assert failed
    assert isinstance(actor.handle([operation]).answers[0], Done)
    for time_s in (3, 4, 70, 71):
        event = ops.evaluate(body(time_s, user="ada", a=time_s % 2, b=5, text="xy"))
        assert untimed(actor.handle([event])) == untimed(twin.handle([event]))
    assert kept(actor) == kept(twin)


@pytest.mark.parametrize(
    "look", [READS[ops.TIMELINE][0], READS[ops.COMPARISON][1]], ids=["timeline", "comparison"]
)
def test_what_a_read_has_begun_to_watch_breaks_no_evaluation(made, look, monkeypatch):
    """Whoever looks at a timeline or a comparison has events explained while they are evaluated."""
    actor, twin = made(IDS[0]), made(IDS[1])
    actor.handle([look])

    def fail(*_: object, **__: object) -> None:
        raise Planted

    monkeypatch.setattr("engine.evaluation.inspecting.timelines.explain_clean", fail)
    monkeypatch.setattr("engine.evaluation.inspecting.comparisons.Entries", fail)
    monkeypatch.setattr("engine.evaluation.inspecting.comparisons.reading_at", fail)
    for time_s in (3, 4, 70):
        events = [ops.evaluate(body(time_s, user=user, a=1, b=5)) for user in ("ada", "bob")]
        ours, theirs = actor.handle(events), twin.handle(events)
        assert ours.crash is None
        assert untimed(ours) == untimed(theirs)
    assert isinstance(actor.handle([look]).answers[0], Done)


@pytest.mark.parametrize(
    "broken", ["explanation.explaining.Explaining", "inspecting.explanations.node_document"]
)
def test_an_event_that_cannot_be_explained_is_evaluated_and_its_actions_have_no_explanation(
    made, broken, monkeypatch
):
    actor, twin = made(IDS[0]), made(IDS[1])

    def fail(*_: object, **__: object) -> None:
        raise Planted

    monkeypatch.setattr(f"engine.evaluation.{broken}", fail)
    ours, theirs = actor.handle([ops.evaluate(EVENT, explained=True)]), twin.handle([ops.evaluate(EVENT)])
    assert untimed(ours) == untimed(theirs)
    assert kept(actor) == kept(twin)


def test_a_read_without_memory_loses_the_detector(made):
    actor = made(IDS[0])
    with failing_at(5, MemoryError):
        reply = actor.handle([ops.explain(EVENT)])
    assert reply.crash is not None
    assert reply.crash.lost
    assert actor.detector_id is None


def test_a_read_of_a_read_only_detector_that_fails_is_one_internal_error(made, tmp_path):
    actor = made(IDS[0])
    actor.passivate()
    settings = RuntimeSettings(data=tmp_path)
    reading = ReadOnlyDetector(IDS[0], tmp_path / "detectors" / IDS[0], "full", settings.limits, RealFiles())
    with failing_at(5):
        reply = reading.handle([ops.rules(), ops.explain(EVENT)])
    assert reply.crash is not None
    assert not reply.crash.lost
    assert isinstance(reading.handle([ops.explain(EVENT)]).answers[0], Done)


async def test_the_caller_of_a_read_that_fails_is_told_and_all_others_are_answered(
    tmp_path, monkeypatch, caplog
):
    def fail(*_: object) -> None:
        raise Planted("so odd")

    monkeypatch.setattr("engine.runtime.detector.apply.state_of", fail)
    async with local_service(tmp_path) as service:
        detector = await service.backend.create_detector("one")
        await service.backend.call(detector, ops.evaluate(EVENT))
        (epoch,) = service.actors.with_detector(detector).service.queues
        *first, failed, last = await asyncio.gather(
            service.backend.call(detector, ops.evaluate(EVENT)),
            service.backend.call(detector, ops.rules()),
            service.backend.call(detector, READS[ops.STATE][0]),
            service.backend.call(detector, ops.evaluate(EVENT)),
        )
        assert all(isinstance(answer, Done) for answer in (*first, last))
        (entry,) = failed.entries
        assert entry.code == 1500
        reference = entry.message.split()[-1]
        (logged,) = [record for record in caplog.records if reference in record.getMessage()]
        assert "so odd" in logged.detail
        assert list(service.actors.with_detector(detector).service.queues) == [epoch], "no new activation"
