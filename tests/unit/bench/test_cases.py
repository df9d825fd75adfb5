"""Every case runs in a tiny world, in which ours, the floor and the peers that are installed agree."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import tests.bench.__main__ as program
from engine import Detector
from tests.bench.cases import CASES
from tests.bench.front import front
from tests.bench.measuring import fresh
from tests.bench.measuring.effort import TINY, Effort
from tests.bench.measuring.race import Condition, Contestant, Event, ours, race
from tests.bench.measuring.rows import Part
from tests.bench.rules import counting, stateless, temporal, worst
from tests.bench.rules.peers import NOT_INSTALLED, Changes, Field, of_temporal, of_three_leaves
from tests.bench.sets import curve, indexed, ratios, shared

TINY_PARTS = [
    # The later parts of a case differ from its first ones in their rules.
    pytest.param(part, marks=pytest.mark.long if place >= 3 else (), id=str(part))
    for case, parts in CASES.items()
    # The service is asked by integration tests.
    if case != front.CASE
    for place, part in enumerate(parts(TINY))
]


@pytest.fixture
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run here what would have a process of its own."""

    def call(_: str, function: str, **arguments: object) -> dict[str, float]:
        answer = getattr(counting, function)(**json.loads(json.dumps(arguments)))
        return json.loads(json.dumps(answer))

    monkeypatch.setattr(counting, "call", call)


@pytest.mark.storm
@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize("part", TINY_PARTS)
def test_a_case_gives_rows_with_a_ratio(part: Part) -> None:
    rows = part.measure()
    assert rows
    assert len({row.key for row in rows}) == len(rows)
    for row in rows:
        assert row.case == part.case
        assert row.ratio > 0
        # A curve has no floor: each row is compared with the one for a single rule.
        assert row.floor is not None or row.case == curve.CASE


@pytest.mark.storm
@pytest.mark.parametrize("shape", worst.SHAPES, ids=lambda shape: shape.name)
def test_the_worst_that_is_measured_is_within_the_limits(shape: worst.Shape) -> None:
    rules = shape.rules(1.0)
    detector = Detector()
    # Rules without records differ in nothing that a limit is about, but their number.
    for number, rule in enumerate(rules[:1_000]):
        detector.add_rule(f"{number} " + "n" * 240, rule)
    assert len(rules) <= detector.limits.rules_max


def test_a_peer_that_is_not_installed_is_named_and_not_made() -> None:
    def make() -> Contestant:
        raise AssertionError

    assert Field.of({"no-such-package": [make]}).absent == {"no-such-package": NOT_INSTALLED}


def test_answers_of_reelay_tell_only_changes() -> None:
    changes = Changes()
    assert changes.verdicts([{}, {"time": 1, "value": True}, {}]) == [(), (0,), (0,)]
    assert changes.verdicts([{}, {"time": 4, "value": False}, {}]) == [(0,), (), ()]


# -- what is written by hand, and peers ----------------------------------------------------------------------

MEMBERS = [(member, keyed) for member in temporal.MEMBERS for keyed in (False, True)]
Judged = tuple[Sequence[Condition], list[Contestant], list[Event]]


def with_time() -> Iterator[Judged]:
    """Events at the edges of windows."""
    stream = temporal.Stream(step_ms=120_000, window_ms=600_000, keys=2)
    for member, keyed in MEMBERS:
        condition = f"per user ({member.condition})" if keyed else member.condition
        loop = temporal.by_hand(member.loop_keyed if keyed else member.loop, stream.window_ms)
        yield [condition], [loop], stream.events(1_500, alarming=0.2)


def at_edges() -> Iterator[Judged]:
    """Events at the edges of ranges."""
    rules = stateless.rules_drawn(200)
    edges = [(rule.low, rule.high, country) for rule in rules for country in rule.countries]
    events: list[Event] = [
        ({"amount": amount, "country": country, "email": f"a@{domain}.example"}, 0.0, None)
        for low, high, country in edges[:30]
        for amount in (low - 1, low, high, high + 1)
        for domain in stateless.DOMAINS
    ]
    yield [rule.text() for rule in rules], [stateless.floor(rules), ratios.leaves_by_hand(rules)], events


def of_many_rules() -> Iterator[Judged]:
    world = indexed.world(200, 3_000)
    yield world.conditions, [world.floor], world.events
    mixed, count = ratios.mixed_by_hand(ratios.MIXED_RULES), ratios.MIXED_RULES
    yield [curve.mixed(number) for number in range(count)], [mixed], curve.events(3_000, count)


@pytest.mark.parametrize("worlds", [with_time, at_edges, of_many_rules])
def test_what_is_written_by_hand_judges_as_the_engine_does(worlds: Callable[[], Iterator[Judged]]) -> None:
    for conditions, floors, events in worlds():
        engine = ours(conditions)
        answers = engine.verdicts(engine.run(events))
        for floor in floors:
            assert floor.verdicts(floor.run(events)) == answers
        # Many rules are true at some events, and at some none.
        assert () in answers
        assert len({number for verdict in answers for number in verdict}) > 0.1 * len(conditions)


@pytest.mark.parametrize("member", shared.MEMBERS, ids=lambda member: member.name)
def test_rules_that_share_a_history_are_judged_alike(member: shared.Member) -> None:
    contestants, events = shared.world(member, TINY)
    assert race(contestants, events, TINY).fired["floor"] > 0


@pytest.mark.slow
def test_the_peers_that_are_installed_judge_alike() -> None:
    rules = stateless.rules_drawn(10)
    races = [(of_three_leaves(rules), stateless.floor(rules), stateless.events_drawn(TINY.events))]
    stream = temporal.Stream(step_ms=1_000, window_ms=20_000, keys=3)
    for member, keyed in MEMBERS:
        pattern = f"exists[u]. {{user: *u}} and {member.pattern_keyed}" if keyed else member.pattern
        peers = of_temporal(pattern.replace("STEPS", str(stream.steps)), keyed=keyed)
        loop = temporal.by_hand(member.loop_keyed if keyed else member.loop, stream.window_ms)
        races.append((peers, loop, stream.events(TINY.events, alarming=0.05)))
    if not any(peers.contestants for peers, *_ in races):
        pytest.skip("no peer is installed")
    for peers, floor, events in races:
        assert race([floor, *peers.contestants], events, TINY).fired["floor"] > 0


def test_a_function_runs_in_a_process_of_its_own() -> None:
    assert fresh.call("os", "getpid") != os.getpid()
    assert fresh.call(fresh.__name__, "resident_bytes") > 2**20


@pytest.mark.storm
@pytest.mark.usefixtures("_here")
def test_an_engine_that_has_become_slow_fails_the_quick_ratios(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def parts(_: Effort) -> list[Part]:
        return ratios.parts(TINY)[:1]

    monkeypatch.setattr(program, "CASES", {ratios.CASE: parts})
    recorded = tmp_path / "recorded.json"
    assert program.main(["--record", "--because", "noise"], recorded) == 0
    evaluate_many = Detector.evaluate_many

    def slow(detector: Detector, events: list[Event]) -> object:
        for _ in range(500 * len(events)):
            pass
        return evaluate_many(detector, events)

    monkeypatch.setattr(Detector, "evaluate_many", slow)
    assert program.main(["--check"], recorded) == 1
    said = capsys.readouterr().out
    assert "worse: ratios: one rule, no key: " in said
    assert "worse: ratios: one rule, 20 keys: " in said
    assert "2 ratios compared, 2 worse" in said
