"""What the rules of a detector may take together: work for patterns, bytes of rules, records without keys."""

import random
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from engine import Detector, Limits
from engine.evaluation.requirements import requirements_of
from engine.evaluation.rule_book.budgets import RECORDS_SHARE, Budgets, SharedBudget
from engine.evaluation.rule_book.changes.many_rules import WantedRule
from engine.evaluation.slices.slices import PLACE_BYTES
from engine.language.condition import Leaf, OnceWithin
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import DEFAULT_LIMITS
from engine.patterns.compiled_pattern import compile_pattern

Random = Callable[..., Iterator[random.Random]]


def test_a_room_counts_each_thing_once_while_anyone_needs_it(examples: Random) -> None:
    for drawn in examples(500):
        most = drawn.randrange(12)
        budget, needs = SharedBudget[int](most, lambda one: one, "{taken} of {most}"), list[frozenset[int]]()

        def draw(things: Iterable[int], drawn: random.Random = drawn) -> frozenset[int]:
            return frozenset(one for one in things if drawn.random() < 0.4)

        for _ in range(20):
            coming = [draw(range(1, 6)) for _ in range(drawn.randrange(3))]
            going = drawn.sample(needs, min(len(needs), drawn.randrange(3)))
            after = [*needs, *coming]
            for one in going:
                after.remove(one)
            taken = sum(frozenset().union(*after))
            entries = [Entry(1400, f"{taken} of {most}")] if taken > max(most, budget.taken) else []
            assert [*budget.exceeded(budget.growth(coming, going))] == entries
            # A bound that was lowered is exceeded.
            if not entries or drawn.random() < 0.3:
                for one in coming:
                    budget.add(one)
                for one in going:
                    budget.remove(one)
                needs = after
                assert budget.taken == taken


PATTERNS = [f"x{number}[ab].{{5}}c" for number in range(3)]
WORK = compile_pattern(PATTERNS[0], DEFAULT_LIMITS).preparation
CONDITIONS = (
    *(
        "a == 1",
        "a==1  # a source that counts",
        'a == "\\u0001' + "x" * 200 + '"',
        "per k distinct(a) > 5000",
    ),
    *(f"t matches '{pattern}'" for pattern in PATTERNS),
    *(
        "count(a == 1) > 1000",
        "count(a == 1) > 500",
        "sum(a) > 5",
        "count(a == 1) > 1000 and distinct(a) > 90",
    ),
    f"count(a == 1) > 1000 or t matches '{PATTERNS[0]}'",
)
MEMBERS: tuple[dict[str, Any], ...] = (
    *({}, {"description": "x" * 150}, {"labels": {"a": "x" * 150}}),
    {"every_secs": 1, "every_by": ["x" * 150]},
)


def taken(budgets: Budgets) -> tuple[int, ...]:
    # They count patterns and rules from the first question on.
    assert [*budgets.exceeded([])] == []
    return budgets.patterns.taken, budgets.rules.taken, budgets.records.taken


def counted_anew(detector: Detector) -> tuple[int, ...]:
    budgets = Budgets(Limits(), {})
    found = taken(budgets)
    for live in detector.live.values():
        budgets.put(None, live, requirements_of(live.rule.condition, live.births))
        found = taken(budgets)
    return found


def changed(detector: Detector, drawn: random.Random) -> None:
    """Change the rules of a detector in one way."""
    rules = detector.rules()
    one = drawn.choice(rules) if rules else None
    condition, members = drawn.choice(CONDITIONS), drawn.choice(MEMBERS)
    new = f"\U0001f600 {detector.priority_highest}"
    match drawn.randrange(8) if one else 0:
        case 0:
            detector.add_rule(new, condition, **members)
        case 1 if one and not one.shadow and detector.shadows.draft_of(one.id) is None:
            detector.add_rule(new, condition, shadow=True, draft_of=one.id)
        case 2 if one:
            detector.change_rule(one.id, condition=condition, history=drawn.choice(("keep", None)))
        case 3 if one:
            detector.change_rule(one.id, **members)
        case 4 if one:
            detector.change_rule(one.id, enabled=not one.enabled)
        case 5 if one:
            detector.remove_rule(one.id)
        case 6 if detector.shadows.comparisons:
            detector.promote(drawn.choice([*detector.shadows.comparisons]))
        case _:
            names = [new, *(rule.name for rule in rules if not rule.shadow)]
            wanted = [
                WantedRule(name, condition, **members) for name in drawn.sample(names, min(2, len(names)))
            ]
            change = detector.rules_change(wanted, prune=drawn.random() < 0.5)
            detector.change_rules(change.put, [rule.id for rule in change.removed])


@pytest.mark.slow
def test_rules_have_room_up_to_each_bound_however_they_come_change_and_go(examples: Random) -> None:
    refusals = set[int]()
    for drawn in examples(300, until=lambda: len(refusals) == 3):
        bounds = [drawn.randrange(*ends) for ends in ((WORK, 3 * WORK), (200, 3_000), (10_000, 60_000))]
        limits = Limits(
            detector_preparation_max=bounds[0],
            rules_bytes_max=bounds[1],
            state_bytes_max=RECORDS_SHARE * bounds[2],
        )
        detector = Detector(limits=limits)
        for _ in range(25):
            before, dumped, state = counted_anew(detector), detector.dump(), drawn.getstate()
            twin = Detector.load(dumped, Detector.STATE_VERSION)
            changed(twin, drawn)
            drawn.setstate(state)
            after = counted_anew(twin)
            full = [n for n in range(3) if after[n] > max(before[n], bounds[n])]
            try:
                changed(detector, drawn)
            except Refusal as refusal:
                assert full
                for entry, place in zip(refusal.entries, full, strict=False):
                    said = [*map(int, re.findall(r"\d+", entry.message))][-2:]
                    assert (entry.code, said) == (1400, [after[place], bounds[place]])
                assert counted_anew(detector) == before
                refusals.update(full)
            else:
                assert full == []
            assert taken(detector.budgets) == counted_anew(detector)
            if drawn.random() < 0.3:
                # Then memories have other births.
                detector.evaluate({"a": 1, "k": 1}, 0)
            if drawn.random() < 0.2:
                detector = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=limits)


def test_records_without_keys_are_those_of_enabled_rules_each_with_its_birth() -> None:
    large, other = "count(a >= 0) > 1000", "count(a == 1) > 1000"
    alone = Detector()
    alone.add_rule("large", large)
    detector = Detector(limits=Limits(state_bytes_max=RECORDS_SHARE * alone.budgets.records.taken))

    def refused(act: Callable[..., object], *given: Any, **members: Any) -> bool:
        try:
            act(*given, **members)
        except Refusal as refusal:
            return "count without `per`" in str(refusal)
        return False

    first = detector.add_rule("first", large)
    assert refused(detector.add_rule, "other", other)
    detector.add_rule("keyed", "per k distinct(a) > 5000")
    same = detector.add_rule("the same", f"a == 1 and {large}")
    assert refused(detector.change_rule, first, condition=other), "one rule reads it still"
    detector.evaluate({}, 0)
    assert refused(detector.add_rule, "late", large), "it would have a record of its own"
    detector.change_rule(same, enabled=False)
    assert refused(detector.change_rule, same, enabled=True), "its record would begin now"
    detector.change_rule(first, condition=other)
    detector.change_rule(first, condition=large)
    assert refused(detector.change_rule, first, condition=f"{large} and {other}")
    detector.remove_rule(first)
    assert not refused(detector.change_rule, same, enabled=True)


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("count(a >= 0) >= 100", 1),
        ("count(a >= 0) within 1h > 3", 1),
        ("distinct(v) > 20", 10**3_999),
        ("distinct(v) > 20", 1),
        ("sum(a) within 256ms > 0", 1),
        ("avg(a) within 256ms > 0", 1),
        ("avg(a) > 0", 1),
        ("min(a) within 256ms > 0", 1),
        ("once within [200ms, 209ms] a >= 0", 1),
        ("last(t) == 1", 1),
        ("prev(t) == 1", 1),
    ],
)
def test_the_most_that_a_record_without_keys_may_take_is_known(rule: str, value: int) -> None:
    detector = Detector()
    detector.add_rule("r", rule)
    bytes_max = detector.budgets.records.taken
    for number in range(1_000):
        text = "😀" * (1 << 18 if number == 99 else 10)
        detector.evaluate({"a": number, "v": value + number % 200, "t": text}, number)
        record_bytes = detector.histories.unkeyed_bytes - PLACE_BYTES
        assert record_bytes <= bytes_max
    assert value == 1 or record_bytes > 0.95 * bytes_max


@pytest.mark.parametrize(("min_us", "window_us"), [(1, 5), (2, 3), (4, 5), (5, 6), (6, 8), (7, 9)])
def test_a_window_that_events_enter_when_they_are_old_enough_takes_what_is_known_and_no_more(
    min_us: int, window_us: int
) -> None:
    drawn, now_us, most = random.Random(window_us), 0, 0
    detector = Detector()
    detector.add_rule("r", OnceWithin(Leaf("a", "eq", 1), window_us / 1e6, min_us / 1e6))
    for _ in range(10_000):
        now_us += drawn.choice((0, 1, 1, window_us - min_us + 1, window_us - min_us + 1))
        detector.evaluate({"a": 1}, now_us / 1_000)
        most = max(most, detector.histories.unkeyed_bytes - PLACE_BYTES)
    assert most == detector.budgets.records.taken
