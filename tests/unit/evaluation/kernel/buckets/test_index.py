"""The index, asked directly: an event meets the members of its triggers, each once, and no others."""

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine import Limits
from engine.evaluation.facts.look_up import element_fact
from engine.evaluation.facts.lookups import Lookups
from engine.evaluation.facts.pattern_work import PatternWork
from engine.evaluation.facts.values import key_of
from engine.evaluation.kernel.buckets.buckets import Bucket, run
from engine.evaluation.kernel.buckets.index import Index
from engine.evaluation.kernel.indexing.analysis import Holding
from engine.evaluation.kernel.selection.selected_rows import Row, SelectedRows
from engine.evaluation.kernel.selection.triggers import (
    PRESENT,
    Beginning,
    Element,
    Ending,
    Found,
    Hit,
    InNetwork,
    Known,
    Range,
    Trigger,
    Triggers,
    Value,
    may_meet_several,
)
from engine.language.operators import LARGEST
from engine.language.validation.networks import network_of

HOLDING: Any = Holding(None)  # type: ignore[arg-type]
"""A trigger on what a slice remembers, which the index leaves to others."""
OF_ELEMENTS = element_fact("e", "n")
FACTS = ("a", "b.c", "$d", OF_ELEMENTS)
VALUES = (1, 2, 2.5, "x", "xy", "y", True, 10**30)
PATTERNS = ("^x", "y$", "^$")
ENDS = (0, 1, 2, 2.5, 10**30)
TEXTS = ("", "x", "xz", "z")
BEGINNINGS = ("x", "xy", "z", "xyz")
NETWORKS = ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "2001:db8::/32", "::/0")
ADDRESSES = ("10.1.2.3", "10.1.2.4", "11.0.0.0", "::ffff:10.9.9.9", "2001:db8::1", "10.1.2.3/8")
SEEN: tuple[Any, ...] = (*VALUES, None, False, "", "zxz", "xyz", [1, "x"], ["xy"], [], {"x": 1}, *ADDRESSES)


def fire_all(_: Any, rest: Any, *event: Any) -> None:
    """Stands for the function of a shape: every row fires."""
    for row in rest:
        event[-1](row if isinstance(row, int) else row[-2])


class World:
    """An index, and what was compiled for it."""

    def __init__(self) -> None:
        self.known = dict[int, list[Known | None]]()
        self.selected = SelectedRows(lambda member, known: (self._noted(member, known), fire_all))
        self.patterns = PatternWork(Limits())
        self.lookups = Lookups()
        self.index = Index(self.new_bucket, self.selected, self.patterns.of, self.lookups, {})
        self.members = dict[int, Triggers | None]()

    def new_bucket(self, known: Known | None) -> Bucket:
        """Give a bucket whose members have no constants."""

        def compiled(member: int, known: Known | None) -> Row:
            self._noted(member, known)
            return Row(fire_all, [], [])

        return Bucket(compiled, self.selected, known)

    def _noted(self, member: int, known: Known | None) -> int:
        self.known.setdefault(member, []).append(known)
        return member

    def add(self, member: int, *triggers: Trigger, always: bool = False) -> None:
        given = None if always else frozenset(triggers)
        several = may_meet_several(given)
        if several:
            self.selected.add(member)
        self.index.add(member, given, member % 3, several=several)
        for fact, pattern in _patterns(given):
            self.patterns.add(fact, pattern)
        self.lookups.add(_literals(given))
        self.members[member] = given

    def remove(self, member: int) -> None:
        given = self.members.pop(member)
        several = may_meet_several(given)
        self.index.remove(member, given, member % 3, several=several)
        if several:
            self.selected.remove(member)
        for fact, pattern in _patterns(given):
            self.patterns.remove(fact, pattern)
        self.lookups.remove(_literals(given))

    def met(self, fields: dict[str, Any], sent: dict[str, Any]) -> list[int]:
        """Give the members that an event meets, in the order in which they run."""
        found: list[int] = []
        self.patterns.begin(fields, sent)
        run(self.index.met_by(fields, sent), (), fields, sent, 0, 1, None, found.append)
        self.lookups.forget()
        return found

    def expected(self, fields: dict[str, Any], sent: dict[str, Any]) -> list[int]:
        return [
            member
            for member, triggers in self.members.items()
            if triggers is None or any(_meets(trigger, fields, sent) for trigger in triggers)
        ]


def _patterns(triggers: Triggers | None) -> list[tuple[str, str]]:
    return [(each.fact, each.pattern) for each in triggers or () if isinstance(each, Found)]


def _literals(triggers: Triggers | None) -> list[tuple[str, str]]:
    elements = [each for each in triggers or () if isinstance(each, Element)]
    return [(each.fact, each.value) for each in elements if isinstance(each.value, str)]


def _meets(trigger: Trigger, fields: dict[str, Any], sent: dict[str, Any]) -> bool:
    if trigger is HOLDING:
        return False
    if trigger.fact == OF_ELEMENTS:
        return any(_is_met(trigger, element["n"]) for element in fields["e"])
    return _is_met(trigger, {"a": fields["a"], "b.c": fields["b"]["c"], "$d": sent.get("d")}[trigger.fact])


def _is_met(trigger: Trigger, value: Any) -> bool:
    match trigger:
        case Hit(_, wanted):
            return value is not None and (wanted is PRESENT or key_of(value) == wanted)
        case Range(_, low, high):
            if isinstance(low, str):
                return isinstance(value, str) and low <= value <= str(high)
            return type(value) in (int, float) and low <= value <= high
        case Element(_, wanted):
            if isinstance(value, list):
                return wanted in map(key_of, value)
            return isinstance(value, str) and isinstance(wanted, str) and wanted in value
        case Found(_, pattern):
            return isinstance(value, str) and re.search(pattern, value) is not None
        case Beginning(_, text):
            return isinstance(value, str) and value.startswith(text)
        case Ending(_, text):
            return isinstance(value, str) and value.endswith(text)
        case InNetwork(_, number):
            return isinstance(value, str) and any(
                number == key_in(each) and value in inside for each, inside in IN_NETWORK.items()
            )
    raise AssertionError(trigger)


def key_in(network: str) -> int:
    found = network_of(network)
    assert found is not None
    return found.key


IN_NETWORK = {
    "10.0.0.0/8": {"10.1.2.3", "10.1.2.4", "::ffff:10.9.9.9"},
    "10.1.0.0/16": {"10.1.2.3", "10.1.2.4"},
    "10.1.2.3": {"10.1.2.3"},
    "2001:db8::/32": {"2001:db8::1"},
    "::/0": {"2001:db8::1"},
}


def drawn(draw: Callable[[Any], Any]) -> Iterator[Trigger]:
    """Give triggers of every kind, for ever."""
    while True:
        fact = draw(FACTS)
        numbers, texts = sorted([draw(ENDS), draw(ENDS)]), sorted([draw(TEXTS), draw(TEXTS)])
        yield draw(
            (
                Hit(fact, key_of(draw(VALUES))),
                Hit(fact, PRESENT),
                Element(fact, key_of(draw(VALUES))),
                Found(fact, draw(PATTERNS)),
                Beginning(fact, draw(BEGINNINGS)),
                Ending(fact, draw(BEGINNINGS)),
                InNetwork(fact, key_in(draw(NETWORKS))),
                Range(fact, numbers[0], numbers[1]),
                Range(fact, numbers[0], LARGEST),
                Range(fact, texts[0], texts[1]),
            )
        )


@pytest.mark.parametrize("seed", range(6))
def test_an_event_meets_the_members_of_its_triggers_each_once(seed: int) -> None:
    draw, world = random.Random(seed), World()
    triggers = drawn(draw.choice)
    met = 0
    for member in range(120):
        if draw.random() < 0.05:
            world.add(member, always=True)
        else:
            world.add(member, *(next(triggers) for _ in range(draw.choice((1, 1, 2, 3)))))
        if draw.random() < 0.4:
            world.remove(draw.choice([*world.members]))
        for _ in range(3):
            fields = {"a": draw.choice(SEEN), "b": {"c": draw.choice(SEEN)}}
            fields["e"] = [{"n": draw.choice(SEEN)} for _ in range(draw.choice((0, 1, 2, 5)))]
            sent = {"d": draw.choice(SEEN)} if draw.random() < 0.8 else {}
            found = world.met(fields, sent)
            assert sorted(found) == world.expected(fields, sent)
            assert [member % 3 for member in found] == sorted(member % 3 for member in found)
            met += len(found)
    assert met > 500
    for member in [*world.members]:
        world.remove(member)
    assert (world.index._facts, world.index._always.size) == ({}, 0)
    assert not world.index._names.found_in({"a": 1, "b": {"c": 1}, "e": [{"n": 1}]}, {"d": 1})


def test_what_is_known_of_an_event_is_the_value_that_it_has() -> None:
    world = World()
    triggers = Hit("a", 1), Hit("a", PRESENT), Element("a", "x"), Found("a", "^x")
    for member, trigger in enumerate(triggers):
        world.add(member, trigger)
    for value in (1, "x"):
        world.met({"a": value}, {})
    assert world.known == {0: [Value("a", 1)], 1: [None], 2: [None], 3: [None]}


def test_a_memory_has_a_bucket_of_its_own() -> None:
    world = World()
    world.add(1, HOLDING)
    assert (world.met({"a": 1}, {}), world.index._facts) == ([], {})


@pytest.mark.parametrize("elements", [1, 5])
def test_elements_are_found_whether_there_are_more_of_them_or_more_in_an_event(elements: int) -> None:
    world = World()
    for member in range(3):
        world.add(member, Element("a", f"text {member}"))
    event = [f"text {number}" for number in range(elements)]
    assert sorted(world.met({"a": event}, {})) == [*range(min(elements, 3))]
    assert sorted(world.met({"a": " ".join(event)}, {})) == [*range(min(elements, 3))]


def test_the_more_values_rules_ask_for_the_less_a_trigger_costs() -> None:
    world = World()
    cost = world.index.cost

    def costs() -> list[float]:
        each = Found("a", "^x"), Element("a", "x"), Hit("a", 1), Hit("a", PRESENT)
        return [cost(frozenset({trigger})) for trigger in (*each, HOLDING)]

    before = costs()
    assert before == [20, 2 / 3, 1 / 3, 1, 0.5]
    assert cost(frozenset({Hit("a", 1), Hit("a", PRESENT), Found("a", "^x")})) == 1 / 3 + 1 + 20
    for number in range(4):
        for member, trigger in enumerate((Found("a", f"^{number}"), Element("a", number), Hit("a", number))):
            world.add(3 * number + member, trigger)
    assert costs() == [20 / 5, 2 / 7, 1 / 6, 1, 0.5]
    # Values count whether or not rules are indexed by them.
    for number in range(9):
        cost(frozenset({Hit("a", number)}))
    assert cost(frozenset({Hit("a", 1)})) == 1 / 11
    assert cost(frozenset({Hit("a", 1), Hit("a", 2)})) == 2 / 12
    assert cost(frozenset({Hit("a", 1), Hit("b.c", 1)})) == 1 / 11 + 1 / 3
    assert 0 < cost(frozenset({Range("a", 1, 2)})) < 1
