"""Dry runs give the answers of the evaluations that follow, and change nothing. Explaining evaluations do."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from engine import Detector, Refusal, explain
from engine.evaluation.events.intake import Intake
from engine.evaluation.events.outcomes import Outcome
from engine.evaluation.explanation import firings
from engine.evaluation.explanation.decided import Before, Entries
from engine.evaluation.explanation.firings import dry_run, evaluate_explained
from engine.evaluation.explanation.nodes import Node
from engine.evaluation.slices.slices import Remembered
from tests.differential.comparison import Pair
from tests.differential.feeding import submitted
from tests.differential.modes import TRIED, in_mode
from tests.differential.timed import TimedPair
from tests.property.looking.test_explanations import WORLDS
from tests.worlds.scripts import Step, Submit
from tests.worlds.shared_histories import EndlessWorld, NestedWorld, RunsWorld, SharedWorld
from tests.worlds.timed import BusyWorld, KeptWorld

BATCH = 6


def twin(detector: Detector) -> Detector:
    return Detector.load(detector.dump(), Detector.STATE_VERSION)


def clean(step: Submit) -> tuple:
    return Intake(Detector().limits).event(step.fields, step.timestamp_ms, step.vars)


def told(outcome: Outcome | Refusal) -> tuple:
    if isinstance(outcome, Refusal):
        return ("refused", *outcome.entries)
    return tuple(rule.id for rule in outcome.fired), tuple(outcome.messages)


def batch_told_as_evaluated(engine: Detector, steps: Sequence[Step]) -> int:
    """Fork the detector for the next events; return how many of them fired rules."""
    events = [clean(step) for step in steps[:BATCH] if isinstance(step, Submit)]
    before, whole = engine.dump(), twin(engine)
    expected = list(map(told, submitted(engine.fork(events), events)))
    assert engine.dump() == before
    assert expected == list(map(told, submitted(whole, events)))
    whole.forget_lookups()
    return sum(one[0] not in {(), "refused"} for one in expected)


def event_told_as_evaluated(engine: Detector, step: Submit) -> int:
    """Try an event, and evaluate it in two copies, one of which explains; return how many rules fired."""
    event = clean(step)
    before, plain, explaining = engine.dump(), twin(engine), twin(engine)
    (outcome,) = submitted(plain, [event])
    if isinstance(outcome, Refusal):
        with pytest.raises(Refusal) as refused:
            dry_run(engine, *event)
        assert refused.value.entries == outcome.entries
        assert engine.dump() == before
        return 0
    expected = dry_run(engine, *event)
    explanations = explain(engine, *event).rules
    assert engine.dump() == before
    fired = evaluate_explained(explaining, *event)
    assert told(outcome) == (tuple(rule.id for rule in fired.rules), fired.messages)
    assert expected == fired
    acting = {rule.id for rule in fired.rules}
    true = [one for one in explanations if one.verdict]
    assert fired.nodes == tuple(one.node for one in true if one.rule.id in acting)
    assert all(one.rule.id in acting or one.rule.every_secs for one in true)
    assert explaining.dump() == plain.dump()
    return len(fired.rules)


def feed_told_as_details(engine: Detector, step: Submit) -> int:
    """Have all rules of a copy notify; compare its feed with the details, and count the witnesses."""
    noting = twin(engine)
    for rule in noting.rules():
        noting.change_rule(rule.id, notify=True)
    try:
        fired = evaluate_explained(noting, *clean(step), detailed=True)
    except Refusal:
        return 0
    firings = [json.loads(one) for one in noting.feed.page(engine.feed.last, 10**6).firings]
    details = zip(fired.rules, fired.details, strict=True)
    assert [(one["ruleId"], one["keys"], one.get("found", {})) for one in firings] == [
        (rule.id, each.keys, each.found) for rule, each in details
    ]
    witnesses = 0
    for node, firing in zip(fired.nodes, firings, strict=False):
        times = [(one.text, one.witness_us) for one in nodes_in(node) if one.verdict]
        for text, time_ms in firing["why"].get("witnesses_ms", {}).items():
            begins = text.removesuffix("…")
            assert any(one_us == round(time_ms * 1_000) and one.startswith(begins) for one, one_us in times)
            witnesses += 1
    assert Detector.load(noting.dump(), Detector.STATE_VERSION).feed.dump() == noting.feed.dump()
    return witnesses


def nodes_in(node: Node) -> Iterator[Node]:
    yield node
    for inner in node.nodes:
        yield from nodes_in(inner)


def told_as_evaluated(script: Sequence[Step], drawn: random.Random) -> Counter[str]:
    """Play a script with dry runs in between; count their events that fired rules."""
    pair, met = Pair(), Counter[str]()
    events = [step for step in script if isinstance(step, Submit)]
    for place, step in enumerate(script):
        if isinstance(step, Submit) and drawn.random() < 0.15:
            # What a dry run leaves behind may be exactly what the same event writes.
            tried = drawn.choice((step, *events[:1], drawn.choice(events)))
            met["alone"] += event_told_as_evaluated(pair.engine, tried)
            met["witnesses"] += feed_told_as_details(pair.engine, step)
        if drawn.random() < 0.06:
            met["in batches"] += batch_told_as_evaluated(pair.engine, script[place:])
        # The reference never sees a dry run.
        pair.apply(step)
    return met


@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize("world", WORLDS)
def test_dry_runs_agree_with_evaluations(
    world: str,
    mode: str,
    examples: Callable[..., Iterator[random.Random]],
) -> None:
    make, count, shape = WORLDS[world]
    for drawn in examples(max(3, count // 4), world, mode):
        script = make(drawn.choice).script(**shape)
        with in_mode(mode):
            told_as_evaluated(script, drawn)


def with_many_keys(script: Sequence[Step], drawn: random.Random) -> list[Step]:
    """Give each event one key, of more keys than a batch has."""
    return [
        replace(step, fields={**step.fields, "k": drawn.randrange(12)}) if isinstance(step, Submit) else step
        for step in script
    ]


@pytest.mark.slow
@pytest.mark.parametrize("world", [SharedWorld, NestedWorld, RunsWorld, EndlessWorld])
def test_the_dry_run_of_a_batch_needs_only_the_keys_of_the_batch(
    world: type[SharedWorld], examples: Callable[..., Iterator[random.Random]]
) -> None:
    for drawn in examples(20, world.__name__):
        script = with_many_keys(world(drawn.choice).script(steps_max=60), drawn)
        with in_mode("indexed"):
            pair = Pair()
            for place, step in enumerate(script):
                if drawn.random() < 0.4:
                    batch_told_as_evaluated(pair.engine, script[place:])
                pair.apply(step)


@pytest.mark.slow
def test_dry_runs_meet_rules_that_fire(seed: int) -> None:
    """If nothing ever fired, agreement would mean little."""
    make, _, shape = WORLDS["deep conditions"]
    met = Counter[str]()
    for number in range(400):
        drawn = random.Random(f"{seed} {number}")
        met += told_as_evaluated(make(drawn.choice).script(**shape), drawn)
        if min(met["alone"], met["in batches"]) > 5:
            return
    pytest.fail(f"{met}")


@pytest.mark.slow
def test_an_explained_evaluation_reads_what_the_rules_that_fire_remember_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    detector = Detector()
    for number in range(300):
        action = f"per user (count(a == {number}) within 1m >= 2)"
        detector.add_rule("rule", f'user == "u{number}" and {action}')
    for _ in range(2):
        detector.submit_clean([({"user": f"u{number}", "a": number}, 0, None) for number in range(20)])
    read = []
    plain = Entries.of

    def counted(entries: Entries, remembered: Remembered) -> Before:
        read.append(remembered)
        return plain(entries, remembered)

    monkeypatch.setattr(Entries, "of", counted)
    fired = evaluate_explained(detector, {"user": "u7", "a": 7}, 1, {})
    assert (len(fired.rules), len(fired.nodes), len(read)) == (1, 1, 1)
    assert fired.nodes[0].nodes[1].nodes[0].found == 2


def test_rules_that_fire_have_nodes_up_to_a_bound_and_the_first_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    detector = Detector()
    for number in range(3):
        detector.add_rule("rule", f"count(a == {number}) >= 0")
    for nodes_max, explained in ((1, 1), (3, 1), (4, 2), (6, 3)):
        monkeypatch.setattr(firings, "NODES_MAX", nodes_max)
        fired = evaluate_explained(detector, {"a": 1}, 1, {})
        assert (len(fired.rules), len(fired.nodes)) == (3, explained)


def test_an_event_is_evaluated_though_it_cannot_be_explained(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    detector = Detector()
    detector.add_rule("rule", "count(a == 1) >= 2")
    monkeypatch.setattr(firings, "requirements_of", lambda _: 1 / 0)
    for count, fires in enumerate((0, 1), 1):
        fired = evaluate_explained(detector, {"a": 1}, 1, {})
        assert (len(fired.rules), fired.nodes, detector.events_seen) == (fires, (), count)
    assert "firings could not be explained" in caplog.text


def test_shadow_rules_fire_unseen() -> None:
    detector = Detector()
    detector.add_rule("shadow", "a == 1", shadow=True)
    rule_id = detector.add_rule("rule", "a == 1 and b == 1")
    for fields, fires in (({"a": 1}, []), ({"a": 1, "b": 1}, [rule_id])):
        for firings_of in (dry_run, evaluate_explained):
            fired = firings_of(detector, fields, 1, {})
            assert [rule.id for rule in fired.rules] == fires
            assert len(fired.nodes) == len(fires)


@pytest.mark.parametrize("mode", TRIED)
def test_dry_runs_of_timed_rules_tell_what_evaluations_do_and_let_no_time_pass(
    mode: str, examples: Callable[..., Iterator[random.Random]]
) -> None:
    fired = 0
    for drawn in examples(60, mode, until=lambda: fired > 3):
        with in_mode(mode):
            pair = TimedPair()
            script = drawn.choice((BusyWorld, KeptWorld))(drawn.choice).script()
            for number, step in enumerate(script):
                due_us = pair.engine.next_due_us
                if isinstance(step, Submit):
                    fired += event_told_as_evaluated(pair.engine, step)
                    batch_told_as_evaluated(
                        pair.engine, [each for each in script[number:] if isinstance(each, Submit)]
                    )
                assert pair.engine.next_due_us == due_us
                pair.play(step)
