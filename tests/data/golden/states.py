"""Makes the golden documents: states of detectors, with what happened to them afterwards.

python -m tests.data.golden.states

A detector does half of a script. Its state is stored with the other half, and with the answers that are
right by the reference, or else the detector's own; since version 13 also with more of what there is to see.
`states_10` was made by release 0.1.0, which wrote the lowest version that would do, so the file has 7 to 10.
tests/unit/evaluation/persistence/test_golden_states.py loads each state and goes on.

Everything is there twice: with rules that are indexed, and with rules that are not.
"""

import json
import lzma
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgpack

from engine import Detector, Refusal
from engine.evaluation.persistence.capturing import capture
from engine.evaluation.persistence.figures import figures_of
from engine.evaluation.persistence.packing import packed
from engine.evaluation.rule_book.changes.versions import Change as VersionChange
from engine.language.condition import Condition
from engine.language.json.writer import condition_to_document
from tests.differential.modes import in_mode
from tests.reference import ReferenceDetector
from tests.worlds.long_histories import LongHistoriesWorld
from tests.worlds.many_rules import ManyRulesWorld
from tests.worlds.scripts import Add, Change, Remove, Step, Submit, World
from tests.worlds.shared_histories import EndlessWorld, NestedWorld, RunsWorld, SharedWorld
from tests.worlds.timed import Tick

HERE: Final = Path(__file__).parent

Answer = list[int] | None
"""The priorities of the rules that act at an event; None if it was refused."""

WORLDS: Final[dict[str, tuple[type[World], int, dict[str, int]]]] = {
    "deep": (World, 4, {"depth": 4, "steps_max": 24}),
    "shallow": (World, 4, {"depth": 2, "steps_max": 40}),
    "long histories": (LongHistoriesWorld, 2, {"steps_max": 60}),
    "many rules": (ManyRulesWorld, 1, {"steps_max": 30}),
    "shared": (SharedWorld, 10, {"steps_max": 60}),
    "nested": (NestedWorld, 5, {"steps_max": 60}),
    "runs": (RunsWorld, 3, {"steps_max": 60}),
    "for ever": (EndlessWorld, 2, {"steps_max": 60}),
}
"""Each world, with the number and size of its scripts."""

DISPATCHES: Final = ("fused", "indexed")

OPERATORS: Final = (
    "once a == 1",
    "once within 40s a == 2",
    "earlier a == 1",
    "earlier within 30s a == 2",
    "historically a < 3",
    "historically for 20s a < 3",
    "historically for 20s strong a < 3",
    "a < 3 since a == 0",
    "a < 3 since within 30s a == 0",
    "previous a == 1",
    "count(a == 1) >= 2",
    "count(a == 1) within 60s >= 20",
    "distinct(b) > 3",
    "distinct(b where a > 0) within 60s > 2",
    "sum(a) > 5",
    "sum(a where b > 1) within 60s > 0.5 * b",
    "avg(a) within 60s > 1.5",
)
"""Yield each operator. With 700 keys, their memories are paged."""

MANY: Final = 700
PATHS: Final = ("", "per k ", "per k per b ", "per k where b > 0 ", "per b where (once a == 1) per k ")
TIMED: Final = (
    "per k (not once within 5s exists a)",
    "per k (once within [2s, 6s] a == 1) and not once within 3s b == 2",
    "per k count(a == 1) within 8s < 2",
    "per k age(a == 2) > 4",
)
"""Conditions that time makes true."""
DRAFTED: Final = ("per b count(a == 1) within 9s >= 2", "per  b  count(a == 1) within 9s >= 3")


def step_document(step: Step | Tick) -> list[Any]:
    """Return a step as JSON."""
    match step:
        case Add(name, condition, notify):
            return ["add", name, condition_to_document(condition), notify]
        case Change(place, changes):
            return ["change", place, {name: _as_json(value) for name, value in changes.items()}]
        case Remove(place):
            return ["remove", place]
        case Submit(fields, timestamp_ms, sent):
            return ["submit", fields, timestamp_ms, sent]
        case Tick(time_us):
            return ["tick", time_us]


def _as_json(value: Any) -> Any:
    return condition_to_document(value) if isinstance(value, Condition) else value


def happen(detector: Detector, step: Step | Tick) -> Answer:
    """Execute a step, and return the answer if it is an event."""
    ids = [rule.id for rule in detector.rules()]
    match step:
        case Add(name, condition, notify):
            detector.add_rule(name, condition, notify)
        case Change(place, changes):
            detector.change_rule(ids[place], **changes)
        case Remove(place):
            detector.remove_rule(ids[place])
        case Submit(fields, timestamp_ms, sent):
            try:
                fired = detector.submit(fields, timestamp_ms, sent).fired
            except Refusal:
                return None
            return [rule.priority for rule in fired]
        case Tick(time_us):
            return [one.rule.priority for one in detector.tick(time_us)]
    return None


def _expected(script: list[Step]) -> Iterator[Answer]:
    """Yield the answers of the reference to all events of a script."""
    reference = ReferenceDetector()
    for number, step in enumerate(script):
        ids = list(reference.rules)
        match step:
            case Add(name, condition, notify):
                reference.add_rule(str(number), name, condition, notify=notify)
            case Change(place, changes):
                reference.change_rule(ids[place], **changes)
            case Remove(place):
                del reference.rules[ids[place]]
            case Submit(fields, timestamp_ms, sent):
                actions = reference.evaluate(fields, timestamp_ms, sent)
                yield None if actions is None else [priority for *_, priority, _ in actions]


def _of_worlds() -> Iterator[list[Any]]:
    for world, (made, count, shape) in WORLDS.items():
        for number in range(count):
            script = made(random.Random(f"{world} {number}").choice).script(**shape)
            half = len(script) // 2
            events = sum(isinstance(step, Submit) for step in script[:half])
            answers = list(_expected(script))[events:]
            for dispatch in DISPATCHES:
                with in_mode(dispatch):
                    detector = Detector()
                    for step in script[:half]:
                        happen(detector, step)
                    yield _case(f"{world} {number} {dispatch}", detector, script[half:], answers)


def _of_operators() -> Iterator[list[Any]]:
    """Yield every operator under every path, with rules of four births; or, with many keys, of one."""
    for path in PATHS:
        for keys in (5, MANY) if path else (5,):
            for dispatch in DISPATCHES:
                with in_mode(dispatch):
                    events = _events(random.Random(f"{path} {keys}"), keys)
                    detector = Detector()
                    for birth in range(1 if keys == MANY else 4):
                        for operator in OPERATORS:
                            detector.add_rule(f"{birth} {operator}", path + operator)
                        for event in islice(events, 2 * MANY if keys == MANY else 15):
                            happen(detector, event)
                    name = f"operators {path}{keys} keys {dispatch}"
                    yield _case(name, detector, [*islice(events, 60)])


def _with_drafts() -> Iterator[list[Any]]:
    """Yield rules whose text differs from the canonical one, shadows, and a draft."""
    for dispatch in DISPATCHES:
        with in_mode(dispatch):
            events = _events(random.Random(7), 5)
            detector = Detector()
            live = detector.add_rule("live", DRAFTED[0], True)
            detector.add_rule("shadow", "per b  once a == 3", shadow=True)
            for event in islice(events, 20):
                happen(detector, event)
            detector.add_rule("draft", DRAFTED[1], shadow=True, draft_of=live)
            for event in islice(events, 40):
                happen(detector, event)
            yield _case(f"drafts {dispatch}", detector, [*islice(events, 40)])


def _with_members() -> Iterator[list[Any]]:
    """Yield rules with texts and labels, versions, a history that a change kept, and relations."""
    for dispatch in DISPATCHES:
        with in_mode(dispatch):
            events = _events(random.Random(8), 5)
            detector = Detector()
            detector.change = VersionChange(1_000_000, "0123 a token")
            labels = {"severity": "high", "level": 10**30, "urgent": True}
            rule_id = detector.add_rule("r", "per k once a == 3", description="why", labels=labels)
            detector.put_relation("known", [[1], [2]], 1_000)
            detector.add_rule("known", "known(b) and per k count(a == 1) >= 3")
            for event in islice(events, 20):
                happen(detector, event)
            detector.change = VersionChange(2_000_000, "4567 another")
            either = "(per k once a == 3) or b == 3"
            detector.change_rule(rule_id, condition=either, history="keep", labels={"severity": "low"})
            for event in islice(events, 20):
                happen(detector, event)
            yield _case(f"members {dispatch}", detector, [*islice(events, 40)])


def _that_act() -> Iterator[list[Any]]:
    """Yield waiting timed rules, suppressed actions, and a feed."""
    for dispatch in DISPATCHES:
        with in_mode(dispatch):
            steps = _with_ticks(_events(random.Random(9), 5))
            detector = Detector()
            for condition in TIMED:
                detector.add_rule(f"timed {condition}", condition, True, timed=True)
            detector.add_rule("at most once", TIMED[0], True, timed=True, every_secs=20)
            detector.add_rule("by b", "exists a", True, every_secs=7.5, every_by=["b", "$v"])
            detector.add_rule("once", "a == 2", every_secs=60)
            for step in islice(steps, 60):
                happen(detector, step)
            yield _case(f"acting {dispatch}", detector, [*islice(steps, 80)])


def _with_ticks(events: Iterator[Submit]) -> Iterator[Step | Tick]:
    for number, event in enumerate(events):
        yield event
        if not number % 5:
            yield Tick(round(event.timestamp_ms * 1_000) + 400_000 * (number % 4))


def _that_joined() -> Iterator[list[Any]]:
    """Yield rules that read a memory with expired entries that are older than the rules."""
    with in_mode("indexed"):
        detector, event = Detector(), {"k": 1, "p": 1}
        for condition in ("per k once p == 1", "per k once within 1s p == 1"):
            detector.add_rule(condition, condition)
        happen(detector, Submit(event, 0))
        for condition in ("per k once p == 1", "per k once within 1s p == 1"):
            detector.add_rule(condition, condition)
        for at_ms in (500, 1_500, 2_500):
            happen(detector, Submit({"k": 2, "p": 1}, at_ms))
        yield _case("joined", detector, [Submit({"k": 1}, 3_000), Submit(event, 3_000)])


def _events(drawn: random.Random, keys: int) -> Iterator[Submit]:
    clock_ms = 0
    while True:
        clock_ms += drawn.choice((0, 0, 1, 700, 2500))
        yield Submit(
            {"k": drawn.randrange(keys), "a": drawn.choice((0, 1, 1, 2, 2, 2, 3)), "b": drawn.randrange(4)},
            clock_ms,
        )


def _case(
    name: str, detector: Detector, rest: list[Step | Tick], answers: list[Answer] | None = None
) -> list[Any]:
    """Return a document, what it holds, the steps after it, and their answers: the detector's if not given.

    What it holds: each rule, with its birth and how often it fired, the counts of each draft, and `more` of
    it; then what there is to see after the steps.
    """
    document = b"".join(packed(replace(capture(detector), figures=figures_of(detector))))
    rules = []
    for rule in detector.rules():
        birth, fired = detector.live[rule.id].birth, detector.verdicts.times_fired(rule.priority)
        kind = (rule.enabled, rule.notify, rule.source, rule.shadow, rule.draft_of)
        rules.append([rule.name, condition_to_document(rule.condition), *kind, birth, fired])
    counts = [compared.dump() for compared in detector.shadows.comparisons.values()]
    held = [more(detector), acting(detector)]
    of_detector = [happen(detector, step) for step in rest]
    if answers is None:
        answers = of_detector
    return [
        name,
        Detector.STATE_VERSION,
        document,
        json.dumps([rules, counts, [*map(step_document, rest)], answers, *held, acting(detector)]),
    ]


def acting(detector: Detector) -> list[Any]:
    """Return the state since version 13: how rules act, when one is due, and the feed in short."""
    rules = [[rule.timed, rule.every_secs, rule.every_by] for rule in detector.rules()]
    firings = map(json.loads, detector.feed.page(0, 10_000).firings)
    seen = ("seq", "time_ms", "priority", "keys", "suppressed", "timed")
    feed = [[firing.get(name) for name in seen] for firing in firings]
    return json.loads(json.dumps([rules, detector.next_due_us, feed]))


def more(detector: Detector) -> list[Any]:
    """Return the state since version 12: texts and labels, versions, and relations."""
    described = [[rule.description, dict(rule.labels)] for rule in detector.rules()]
    versions = [[*detector.versions.of(rule, "")] for rule in detector.rules()]
    relations = {name: detector.relation_page(name, 0, 100).tuples for name in sorted(detector.stored)}
    return json.loads(json.dumps([described, versions, relations]))


if __name__ == "__main__":
    made = (_of_worlds, _of_operators, _with_drafts, _with_members, _that_joined, _that_act)
    cases = [case for make in made for case in make()]
    written = HERE / f"states_{Detector.STATE_VERSION}.msgpack.xz"
    written.write_bytes(lzma.compress(msgpack.packb(cases), preset=9))
