"""Checks an explanation against the reference: verdicts, witnesses, and times for which verdicts stay."""

import json
import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice, pairwise, product
from typing import Any

from engine import format  # noqa: A004
from engine.evaluation.explanation.nodes import ExplainedRule, Node
from engine.evaluation.stamps import LATEST_US
from engine.language import condition as terms
from engine.language.condition import Condition, children, walk
from engine.language.forms.table import facts_of
from engine.language.nodes import ConditionNode, TermNode
from engine.language.terms import (
    Abs,
    Add,
    Age,
    AvgTerm,
    CountTerm,
    Div,
    Fact,
    Last,
    Length,
    MaxTerm,
    MinTerm,
    Mul,
    Prev,
    Sub,
    SumTerm,
    looks_back,
    terms_in,
)
from engine.language.text.printer import format_term
from tests import reference_terms
from tests.reference import Event, sliced, strings_of, verdict
from tests.reference_panes import window_us
from tests.reference_values import scalar

PROBES_MAX = 6
SUBSETS_MAX = 200
EVENTS_MAX = 1_000
Computed = Add | Mul | Sub | Div | Abs
NOW = terms.Leaf("$now, which no world has", "eq", 1)


def judge(explained: ExplainedRule, history: Sequence[Event], drawn: random.Random) -> list[Node]:
    """Check all nodes of an enabled rule whose history ends with the event. Return the nodes."""
    judge_why_not(explained, history)
    return list(judge_node(explained.node, explained.rule.condition, list(history), drawn))


def judge_node(
    node: Node, condition: Condition, history: list[Event], drawn: random.Random
) -> Iterable[Node]:
    """Check a node and all nodes inside it. Yield them."""
    assert node.condition == condition
    assert node.verdict is verdict(condition, history), (node, history)
    judge_until(node, history, drawn)
    judge_witness(node, history)
    judge_values(node, history[-1])
    judge_since(node, history)
    judge_found(node, history)
    yield node
    if isinstance(condition, terms.Keyed):
        assert bool(node.nodes) is (node.key is not None) is scalar(history[-1][condition.key])
        if not node.nodes:
            return
        outer, history = history, sliced(history, condition.key)
        if condition.where is not None:
            # The event is checked as if it belonged to the slice.
            kept = [verdict(condition.where, outer[:place]) for place in range(1, len(outer))]
            there = [event for event, keep in zip(outer, kept, strict=False) if keep]
            history = sliced([*there, outer[-1]], condition.key)
            yield from judge_node(node.nodes[1], condition.where, outer, drawn)
            yield from judge_node(node.nodes[0], condition.inner, history, drawn)
            return
    if isinstance(condition, terms.Anywhere):
        assert not node.nodes
        judge_string(node, history[-1])
        return
    if isinstance(condition, terms.Some):
        assert not node.nodes
        judge_element(node, history[-1])
        return
    for member, inner in zip(node.nodes, children(condition), strict=True):
        yield from judge_node(member, inner, history, drawn)


def judge_values(node: Node, event: Event) -> None:
    """Check that exactly the values that were looked up are shown."""
    match node.condition:
        case terms.Leaf(fact) | terms.InNetwork(fact):
            names = [fact]
        case terms.Some():
            names = [*dict.fromkeys(names_of(node.condition))]
        case terms.Ref(fact, _, reference):
            names = [fact, reference]
        case terms.InRelation(_, args):
            names = [arg.fact for arg in args if isinstance(arg, terms.FactArg)]
        case terms.Distinct(fact):
            names = [fact]
        case terms.Sum(fact, _, _, _, value) | terms.Avg(fact, _, _, _, value):
            names = [fact, *([value.fact] if isinstance(value, terms.ScaledFact) else [])]
        case terms.Compare():
            names = [name for name in node.values if name in facts_of(node.condition)]
            assert {*names} == {name for name in facts_of(node.condition) if event[name] is not None}
        case _:
            names = []
    assert repr(dict(node.values)) == repr({name: event[name] for name in names if event[name] is not None})
    if node.key is not None:
        assert all(event[name] == value for name, value in node.key.items())
        assert isinstance(node.condition, terms.Keyed)
        assert node.condition.key in node.key


def judge_element(node: Node, event: Event) -> None:
    """Check that the named element meets the condition, and none before it does."""
    assert isinstance(node.condition, terms.Some)
    fact = node.condition.fact
    named = re.search(rf"`{re.escape(fact)}\[(\d+)\]` meets it", node.note or "")
    assert (named is not None) is node.verdict
    if named is not None:
        for count, meets in ((int(named[1]), False), (int(named[1]) + 1, True)):
            some = {fact.removeprefix("$"): event[fact][:count]}
            sent, fields = (some, {}) if fact.startswith("$") else ({}, some)
            cut = replace(event, fields={**event.fields, **fields}, vars={**event.vars, **sent})
            assert verdict(node.condition, [cut]) is meets, (node, count)


def judge_string(node: Node, event: Event) -> None:
    """Check that the named string is one of the event, and meets the condition."""
    named = re.fullmatch(r"the string (\".*) meets it", node.note or "", re.DOTALL)
    assert (named is not None) is node.verdict
    if named is not None and named[1].endswith('"'):
        text = json.loads(named[1])
        assert text in strings_of(event.fields)
        assert verdict(node.condition, [replace(event, fields={"only": text})])


def judge_until(node: Node, history: Sequence[Event], drawn: random.Random) -> None:
    """Check that the verdict stays until the given time, and is different just after it."""
    last_us = LATEST_US if node.until_us is None else node.until_us
    parts: list[Any] = [part for part, _ in walk(node.condition)]
    compared = [part for part in parts if isinstance(part, terms.Compare)]
    parts += [each for one in compared for side in (one.left, one.right) for each in terms_in(side)]
    windows = {
        window_us(part.window_secs) for part in parts if getattr(part, "window_secs", None) is not None
    }
    edges = {event.time_us + window for event in history for window in windows}
    least_us = {least_age(part) for part, _ in walk(node.condition)}
    edges |= {event.time_us + least for event in history for least in least_us}
    edges |= {edge + max(1, -(-window // 256)) for edge in edges for window in windows}
    if compared:
        # Time changes these in other ways, too.
        now_us = history[-1].time_us
        edges |= {now_us - now_us % unit + unit for unit in (60_000_000, 3_600_000_000, 86_400_000_000)}
        edges |= {now_us + drawn.randrange(1, 10**exponent) for exponent in range(1, 15)}
    near = {edge + off for edge in edges for off in (-1, 0, 1)}
    probes = sorted(time_us for time_us in near if history[-1].time_us < time_us < last_us)
    for at_us in {*drawn.sample(probes, min(PROBES_MAX, len(probes))), *probes[-1:], last_us}:
        assert verdict(node.condition, history, at_us) is node.verdict, (node, history, at_us)
    if node.until_us is not None:
        assert history[-1].time_us <= node.until_us < LATEST_US
        if node.until_us != node.future.known_us:
            assert verdict(node.condition, history, last_us + 1) is not node.verdict, (node, history)


def least_age(condition: Condition) -> int:
    """Return the minimum age of events for a condition, in microseconds."""
    return window_us(getattr(condition, "min_secs", None) or 0)


def judge_witness(node: Node, history: Sequence[Event]) -> None:
    """Check that the named event settles the verdict, or that no single event does if none is named."""
    now_us, given_us = history[-1].time_us, node.witness_us
    parts = [
        [verdict(part, history[: i + 1]) for i in range(len(history))] for part in children(node.condition)
    ]
    held, begun = parts[:1] or [[]], parts[-1:] or [[]]
    left, right = held[0], begun[0]
    since = [place for place, true in enumerate(right) if true and all(left[place + 1 :])]
    window = window_us(node.condition.window_secs) if isinstance(node.condition, terms.Windowed) else math.inf
    least = least_age(node.condition)
    witnesses: list[int]
    match node.condition:
        case terms.Once() | terms.OnceWithin():
            witnesses = [place for place, true in enumerate(right) if true]
        case terms.HistoricallyFor(_, _, "strong"):
            runs = [place for place in range(len(right)) if all(right[place:])]
            if node.verdict:
                runs = [place for place in runs if now_us - history[place].time_us >= window]
            else:
                runs = runs[:1] or [len(history) - 1]
            assert given_us in {history[place].time_us for place in runs}, (node, history)
            return
        case terms.Previous():
            witnesses = [len(history) - 2] if len(history) > 1 and right[-2] else []
        case terms.Earlier() | terms.EarlierWithin():
            witnesses = [place for place, true in enumerate(right[:-1]) if true]
        case terms.Historically() | terms.HistoricallyFor():
            witnesses = [place for place, true in enumerate(right) if not true]
        case terms.Since() | terms.SinceWithin() if not left[-1] and (least or not right[-1]):
            assert given_us == now_us
            return
        case terms.Since() | terms.SinceWithin():
            witnesses = since
        case terms.Compare():
            witnesses = single_witness(node.condition, history)
        case _:
            witnesses = []
    times = [history[place].time_us for place in witnesses]
    in_time = [time_us for time_us in times if least <= now_us - time_us <= window]
    if least and in_time:
        # Of the times stored until they are old enough, not all are kept.
        assert given_us in in_time, (node, history)
        return
    assert given_us == max(in_time, default=None), (node, history)


def single_witness(condition: terms.Compare, history: Sequence[Event]) -> list[int]:
    """Give the place of the event that the only term that looks back asks for, if it asks for one."""
    terms_of = [each for side in (condition.left, condition.right) for each in terms_in(side)]
    match [each for each in terms_of if looks_back(each) and not isinstance(each, Computed)]:
        case [Prev(fact)]:
            return [len(history) - 2] if len(history) > 1 and scalar(history[-2][fact]) else []
        case [Last(fact, where)]:
            return [
                place
                for place, event in enumerate(history[:-1])
                if scalar(event[fact]) and (where is None or verdict(where, history[: place + 1]))
            ]
        case [Age(inner)]:
            return [place for place in range(len(history)) if verdict(inner, history[: place + 1])]
        case _:
            return []


def values_found(condition: terms.Compare, history: Sequence[Event]) -> dict[str, Any]:
    """Return the values of all terms except facts and constants, by their texts."""

    def was(inner: Any, seen: Sequence[Event]) -> list[bool]:
        return [verdict(inner, seen[: place + 1]) for place in range(len(seen))]

    found = {}
    for side in (condition.left, condition.right):
        for term in terms_in(side):
            if isinstance(term, TermNode) and not isinstance(term, Fact):
                value = reference_terms.value(term, history, history[-1].time_us, was)
                if value is not None and not (isinstance(value, float) and not math.isfinite(value)):
                    found[format_term(term)] = value
    return found


def turned_term(term: Any, several: frozenset[Condition]) -> Any:
    """Return a term in which predicates are negated in that way."""
    match term:
        case Add(operands) | Mul(operands) | Sub(operands) | Div(operands):
            return type(term)(tuple(turned_term(each, several) for each in operands))
        case Abs(operand):
            return Abs(turned_term(operand, several))
        case Age(inner) | CountTerm(inner):
            return replace(term, inner=turned(inner, several))
        case Last(_, where) | SumTerm(_, where) | AvgTerm(_, where) | MinTerm(_, where) | MaxTerm(_, where):
            return replace(term, where=where and turned(where, several))
        case _:
            return term


def judge_since(node: Node, history: Sequence[Event]) -> None:
    """Check that all events after the given time, except the explained one, had the verdict."""
    for place, event in enumerate(history[:-1], 1):
        if node.since_us is not None and event.time_us > node.since_us:
            assert verdict(node.condition, history[:place]) is node.verdict, (node, history)


def judge_found(node: Node, history: Sequence[Event]) -> None:
    """Check the number found; a count only as far as the comparison needs it."""
    condition = node.condition
    if isinstance(condition, terms.Compare):
        assert node.found == values_found(condition, history)
    elif not isinstance(condition, terms.Aggregate | terms.CountSince):
        assert node.found is None
    elif isinstance(condition, terms.Count | terms.CountSince | terms.Distinct):
        found = node.found
        assert type(found) is int
        needed = max(1, condition.value + (condition.op not in ("gte", "lt")))
        assert 0 <= found <= needed
        assert verdict(replace(condition, op="gte", value=found), history), (node, history)
        assert found == needed or not verdict(replace(condition, op="gt", value=found), history)
    elif node.found is None:
        below, above = (replace(condition, op=op, value=0) for op in ("lte", "gt"))
        assert not verdict(below, history), (node, history)
        assert not verdict(above, history), (node, history)
    elif math.isfinite(node.found):
        assert verdict(replace(condition, op="eq", value=node.found), history), (node, history)


def judge_why_not(explained: ExplainedRule, history: Sequence[Event]) -> None:
    """Check that the named predicates turn the verdict at a possible event, and that no fewer do."""
    condition, given = explained.rule.condition, explained.why_not
    predicates = list(dict.fromkeys(predicates_in(condition)))
    event = history[-1]
    marked = [*history[:-1], replace(event, vars={**event.vars, NOW.fact[1:]: 1})]

    def turns(several: Iterable[Condition]) -> bool:
        return verdict(turned(condition, frozenset(several)), marked) is not explained.verdict

    assert given is None or turns(given), (explained, history)
    sizes = range(1, len(predicates) + 1 if given is None else len(given))
    if "`why_not`" in (explained.node.note or ""):
        return
    world = Possible(predicates, event)
    if given is not None and not any(map(takes_any_text, predicates)) and world.is_small(given):
        assert world.is_possible(given, turns), (explained, history)
    if sum(math.comb(len(predicates), size) for size in sizes) <= SUBSETS_MAX:
        fewer = chain.from_iterable(combinations(predicates, size) for size in sizes)
        assert not any(turns(one) and world.is_possible(one, turns) for one in fewer), (explained, history)


def predicates_in(condition: Condition) -> Iterable[Condition]:
    """Return everything that counts as a predicate: a leaf, or two leaves written as one comparison."""
    asks_now = isinstance(condition, terms.Compare) and not (
        looks_back(condition.left) or looks_back(condition.right)
    )
    if is_comparison(condition) or asks_now or isinstance(condition, terms.Predicate):
        yield condition
        return
    for child in children(condition):
        yield from predicates_in(child)


def is_comparison(condition: Condition) -> bool:
    return isinstance(condition, terms.All) and bool(re.fullmatch(r"\S+ [<>] \S+", format(condition)))


def is_free(predicate: Condition) -> bool:
    """Return whether it can change with any facts: relations hold any tuples, arrays have any elements."""
    listed = isinstance(predicate, terms.InNetwork) and isinstance(predicate.networks, tuple)
    return isinstance(predicate, terms.InRelation | terms.Some | terms.InNetwork) and not listed


def takes_any_text(predicate: Condition) -> bool:
    """Return whether a text that the rule does not name is assumed to make it true or false, as needed."""
    return isinstance(predicate, terms.Leaf) and predicate.op in ("matches", "contains")


class Possible:
    """The events that differ from one in facts, which have any of the values that matter."""

    def __init__(self, predicates: Sequence[Condition], event: Event) -> None:
        self.predicates, self.event = predicates, event
        parts = [part for one in predicates if not is_free(one) for part, _ in walk(one)]
        ends: list[Any] = [None, "another", -1e9, 1e9, True, [], ["another"]]
        for part in parts:
            if isinstance(part, terms.Leaf) and part.op != "matches":
                constant = part.value
                listed = part.op in ("in", "nin", "between")
                ends += constant if listed else [list(constant) if isinstance(constant, tuple) else constant]
            elif isinstance(part, terms.InNetwork) and isinstance(part.networks, tuple):
                ends += [text.partition("/")[0] for text in part.networks]
            elif isinstance(part, terms.Compare):
                sides = (*terms_in(part.left), *terms_in(part.right))
                constants = [each for each in sides if isinstance(each, str | int | float)]
                # Such as `abs(-1)`.
                constants += values_found(part, [event]).values()
                # A text before each of them, and one after.
                ends += ["", *(each + "x" for each in constants if isinstance(each, str))]
                numbers = [each for each in constants if not isinstance(each, str | bool)]
                ends += [*constants, *(each + step for each in numbers for step in (-1, 1))]
                if any(isinstance(each, Length) for each in sides):
                    ends += [
                        "x" * (round(each) + step) for each in numbers if 0 <= each < 1000 for step in (0, 1)
                    ]
        numbers = sorted({one for one in ends if type(one) in (int, float) and abs(one) < 1e308})
        ends += [low / 2 + high / 2 for low, high in pairwise(numbers)]
        ends += [event[name] for predicate in predicates for name in names_of(predicate)]
        if any(isinstance(part, terms.Ref) and part.op in ("in", "nin") for part in parts):
            # A fact can have any of these values, and the list in which it is searched for can have it, too.
            ends.append([one for one in ends if not isinstance(one, list | dict | None)])
        self.values = list({repr(one): one for one in ends}.values())

    def is_small(self, several: Iterable[Condition]) -> bool:
        """Whether all events can be tried."""
        names = {name for one in several for name in names_of(one)}
        return len(self.values) ** len(names) <= EVENTS_MAX

    def is_possible(self, several: Iterable[Condition], turns: Callable[[Iterable[Condition]], bool]) -> bool:
        """Return whether an event that changes these predicates, and only their facts, turns the verdict."""
        wanted = set(several)
        free = {one for one in wanted if is_free(one)}
        names = sorted({name for one in wanted - free for name in names_of(one)})
        for values in islice(product(self.values, repeat=len(names)), EVENTS_MAX):
            sent = {name[1:]: value for name, value in zip(names, values, strict=True) if name[0] == "$"}
            flat = {name: value for name, value in zip(names, values, strict=True) if name[0] != "$"}
            fields, sent = {**self.event.fields, **flat}, {**self.event.vars, **sent}
            other = replace(self.event, fields=fields, vars=sent)
            changed = free | {
                one
                for one in self.predicates
                if not is_free(one) and verdict(one, [other]) is not verdict(one, [self.event])
            }
            if wanted <= changed and turns(changed):
                return True
        return False


def names_of(predicate: Condition) -> Iterable[str]:
    """Return the names that a predicate uses."""
    if isinstance(predicate, terms.Some):
        if not isinstance(predicate, terms.Anywhere):
            yield predicate.fact
        yield from (name for name in names_of(predicate.inner) if name.startswith("$"))
        return
    for part, _ in walk(predicate):
        match part:
            case terms.Leaf(fact) | terms.InNetwork(fact):
                yield fact
            case terms.Some():
                # Inside another.
                yield from names_of(part)
            case terms.Ref(fact, _, reference):
                yield from (fact, reference)
            case terms.InRelation(_, args):
                yield from (arg.fact for arg in args if isinstance(arg, terms.FactArg))
            case terms.Compare():
                yield from facts_of(part)


def turned(condition: Condition, several: frozenset[Condition]) -> Condition:
    """Return a condition in which some predicates are negated at the marked event, and at no other."""
    if condition in several:
        both = terms.All((condition, terms.Not(NOW)))
        return terms.Any((both, terms.All((terms.Not(condition), NOW))))
    if is_comparison(condition):
        return condition
    match condition:
        case _ if isinstance(condition, terms.Predicate):
            return condition
        case terms.All(members):
            return terms.All(tuple(turned(member, several) for member in members))
        case terms.Any(members):
            return terms.Any(tuple(turned(member, several) for member in members))
        case terms.Compare(left, op, right):
            return terms.Compare(turned_term(left, several), op, turned_term(right, several))
        case _:
            members = {name: getattr(condition, name) for name in condition.__match_args__}
            inside = {name: one for name, one in members.items() if isinstance(one, ConditionNode)}
            return replace(condition, **{name: turned(one, several) for name, one in inside.items()})
