"""Every case runs in a tiny world, in which ours, the floor and the peers that are installed agree."""

import gc
import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import tests.bench.__main__ as program
from engine import Detector
from tests.bench.cases import CASES
from tests.bench.detectors import activation, growth, keys, transport
from tests.bench.front import front
from tests.bench.measuring import fresh
from tests.bench.measuring.effort import FULL, QUICK, TINY, Effort
from tests.bench.measuring.race import Condition, Event, World, ours, race
from tests.bench.measuring.rows import Part
from tests.bench.rules import restless, stateless, temporal, worst
from tests.bench.rules.peers import (
    NAMES,
    NOT_INSTALLED,
    Contestant,
    Field,
    Verdicts,
    of_temporal,
    of_three_leaves,
    version_of,
)
from tests.bench.sets import curve, indexed, mixtures, ratios

NEED_RAY = {transport.CASE, activation.CASE, front.CASE}
"""No unit test starts it; what they measure is what the integration tests hold to be right."""

TINY_PARTS = [
    # The later parts of a case differ from its first ones in their rules.
    pytest.param(part, marks=pytest.mark.long if place >= 3 else (), id=str(part))
    for case, parts in CASES.items()
    if case not in NEED_RAY
    for place, part in enumerate(parts(TINY))
]


@pytest.fixture
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run here what would have a process of its own, and let memory grow by a page at each look.

    What a race freezes stays frozen: otherwise each collection would look through all collected tests.
    """
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
    for module in (growth, keys):

        def call(_: str, function: str, *, module: object = module, **arguments: object) -> dict[str, float]:
            answer = getattr(module, function)(**json.loads(json.dumps(arguments)))
            return json.loads(json.dumps(answer))

        monkeypatch.setattr(module, "call", call)
        monkeypatch.setattr(module, "resident_bytes", itertools.count(4_096, 4_096).__next__)
    monkeypatch.setattr(keys, "SETTLING_EVENTS", 10)


@pytest.mark.storm
@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize("part", TINY_PARTS)
def test_a_case_gives_rows_with_a_ratio(part: Part) -> None:
    rows = part.measure()
    assert rows
    assert len({row.key for row in rows}) == len(rows)
    for row in rows:
        assert row.case == part.case
        # So few keys may take their memory from pages that the process has, which may also give some back.
        assert row.ratio > 0 or (row.ours <= 0 and row.unit == "bytes a key")
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


def test_full_and_quick_runs_have_the_same_parts() -> None:
    for parts in CASES.values():
        assert len(parts(FULL)) >= len(parts(QUICK)) > 0


@pytest.mark.storm
@pytest.mark.usefixtures("_here")
def test_every_peer_is_named_whether_it_is_installed_or_not() -> None:
    named: dict[str, object] = {}
    for case in ("stateless", "temporal"):
        for part in CASES[case](TINY):
            for row in part.measure():
                named |= row.peers
    for name in NAMES:
        if version_of(name) is None:
            assert str(named[name]).startswith(NOT_INSTALLED)
        else:
            assert isinstance(named[name], float)


def test_a_peer_that_is_not_installed_is_not_made() -> None:
    def make() -> Contestant:
        raise AssertionError

    assert Field.of({"no-such-package-of-rules": [make]}).absent == {
        "no-such-package-of-rules": NOT_INSTALLED
    }


def test_the_peers_that_are_installed_judge_alike() -> None:
    rules = stateless.rules_drawn(30)
    events = stateless.events_drawn(TINY.events)
    peers = installed(of_three_leaves(rules))
    assert race([stateless.floor(rules), *peers], events, TINY).fired["floor"] > 0


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("member", temporal.MEMBERS, ids=lambda member: member.name)
def test_a_peer_with_time_judges_alike(member: temporal.Member, keyed: bool) -> None:
    stream = temporal.Stream(step_ms=1_000, window_ms=20_000, keys=3)
    pattern = f"exists[u]. {{user: *u}} and {member.pattern_keyed}" if keyed else member.pattern
    peers = installed(of_temporal(pattern.replace("STEPS", str(stream.steps)), keyed=keyed))
    floor = temporal.by_hand(member.loop_keyed if keyed else member.loop, stream.window_ms)
    events = stream.events(TINY.events, alarming=0.05)
    assert race([floor, *peers], events, TINY).fired["floor"] > 0


def installed(peers: Field) -> list[Contestant]:
    """Give the peers that are there. With none there is nothing to compare."""
    if not peers.contestants:
        pytest.skip("no peer is installed")
    return peers.contestants


def agree(conditions: Sequence[Condition], floor: Contestant, events: list[Event]) -> None:
    """Hold the engine to what a floor says, on every event."""
    engine = ours(conditions)
    answers, by_hand = engine.counts(engine.run(events)), floor.counts(floor.run(events))
    assert answers == by_hand
    assert sum(by_hand) > 0
    assert 0 in by_hand


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("member", temporal.MEMBERS, ids=lambda member: member.name)
def test_a_loop_by_hand_keeps_the_edges_of_a_window(member: temporal.Member, keyed: bool) -> None:
    stream = temporal.Stream(step_ms=120_000, window_ms=600_000, keys=2)
    loop = member.loop_keyed if keyed else member.loop
    condition = f"per user ({member.condition})" if keyed else member.condition
    agree([condition], temporal.by_hand(loop, stream.window_ms), stream.events(1_500, alarming=0.2))


def test_a_dense_mixture_is_judged_alike() -> None:
    world = mixtures.world(50, 4_000)
    agree(world.conditions, world.floor, world.events)


def test_dense_stateless_rules_are_judged_alike() -> None:
    rules = stateless.rules_drawn(200)
    edges = [(rule.low, rule.high, country) for rule in rules for country in rule.countries]
    events: list[Event] = [
        ({"amount": amount, "country": country, "email": f"a@{domain}.example"}, 0.0, None)
        for low, high, country in edges[:150]
        for amount in (low - 1, low, high, high + 1)
        for domain in stateless.DOMAINS
    ]
    agree([rule.text() for rule in rules], stateless.floor(rules), events)


@pytest.mark.parametrize("world_of", [indexed.stateless_world, mixtures.world])
def test_rules_of_the_indexed_worlds_fire_sometimes_and_seldom(world_of: Callable[[int, int], World]) -> None:
    world = world_of(200, 3_000)
    answers = world.floor.run(world.events)
    fired = {number for answer in answers for number in answer}
    assert len(fired) > 20
    assert sum(map(len, answers)) < 20 * len(world.events)


def test_every_kind_of_a_mixture_fires() -> None:
    world = mixtures.world(200, 20_000)
    fired = {number for answer in world.floor.run(world.events) for number in answer}
    texts = [str(world.conditions[number]) for number in fired]
    for sign in ("'once_within'", "'since'", "'since_within'", "'keyed'"):
        assert any(sign in text for text in texts), sign


@pytest.mark.parametrize("keyed", [False, True])
def test_every_restless_rule_is_true_at_some_events_of_its_type_and_false_at_others(keyed: bool) -> None:
    events = restless.events_drawn(6, 2_000)
    answers = restless.floor(keyed=keyed).run(events)
    for number in range(6):
        verdicts = {
            number in answer
            for (fields, _, _), answer in zip(events, answers, strict=True)
            if fields["number"] == number
        }
        assert verdicts == {True, False}, restless.condition(number, keyed=keyed)


def test_a_floor_that_forgets_is_found_out() -> None:
    world = mixtures.world(200, TINY.events * 10)
    forgetful = mixtures.world(200, 1).floor
    answers = world.floor.run(world.events), forgetful.run(world.events[1_000:])
    assert answers[0][1_000:] != answers[1]


def test_answers_of_reelay_tell_only_changes() -> None:
    verdicts = Verdicts()
    assert verdicts.counts([{}, {"time": 1, "value": True}, {}]) == [0, 1, 1]
    assert verdicts.counts([{}, {"time": 4, "value": False}, {}]) == [1, 0, 0]


def test_expiring_keys_are_those_that_grew_and_evicted_ones_are_past_the_limit() -> None:
    window_ms = keys.WINDOW_MS
    assert keys.time_of(FULL.keys) < window_ms, "none expires while they come"
    assert FULL.keys_max < FULL.keys


def test_a_function_runs_in_a_process_of_its_own() -> None:
    answer = fresh.call("tests.bench.detectors.keys", "keep_in_a_dict", keys=5_000)
    assert answer["taken_bytes"] > 5_000 * 50


def test_rules_of_growth_are_judged_as_their_python_would_be() -> None:
    texts = [growth.condition(number)[0] for number in range(40)]
    contestant = ours([text for text in texts if "once" not in text])
    events = [({**growth.event(number), "type": "v0"}, float(number), None) for number in range(2_000)]
    pythons = [python for text, python in map(growth.condition, range(40)) if "once" not in text]
    codes = [compile(python, "rule", "eval") for python in pythons]
    by_hand = [sum(bool(eval(code, {}, fields)) for code in codes) for fields, _, _ in events]
    assert contestant.counts(contestant.run(events)) == by_hand
    assert sum(by_hand) > 0


def test_the_quick_ratios_are_compared_with_the_same_rules_by_hand() -> None:
    rules = stateless.rules_drawn(40)
    events = stateless.events_drawn(1_000)
    agree([rule.text() for rule in rules], ratios.leaves_by_hand(rules), events)
    count = ratios.MIXED_RULES
    agree(
        [curve.mixed(number) for number in range(count)],
        ratios.mixed_by_hand(count),
        curve.events(3_000, count),
    )


def test_every_mixed_rule_is_true_at_some_events_and_false_at_others() -> None:
    count = ratios.MIXED_RULES
    answers = ratios.mixed_by_hand(count).run(curve.events(3_000, count))
    times = Counter(number for answer in answers for number in answer)
    assert set(times) == set(range(count))
    assert max(times.values()) < len(answers)


@pytest.mark.usefixtures("_here")
def test_an_engine_that_has_become_slow_fails_the_quick_ratios(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def parts(_: Effort) -> list[Part]:
        return [replace(part, settles=False) for part in ratios.parts(TINY)[:1]]

    monkeypatch.setattr(program, "CASES", {ratios.CASE: parts})
    recorded = tmp_path / "recorded.json"
    assert program.main(["--record"], recorded) == 0
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
