"""Judges an explanation by the reference: verdicts, witnesses, and times for which verdicts stay."""

import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice, pairwise, product
from typing import Any, assert_never

from engine import format  # noqa: A004
from engine.evaluation.explanation.nodes import ExplainedRule, Node
from engine.evaluation.stamps import LATEST_US
from engine.language import condition as terms
from engine.language.condition import Condition, children, walk
from tests.reference import Event, sliced, verdict, window_us
from tests.reference_values import scalar

PROBES_MAX = 6
SUBSETS_MAX = 200
EVENTS_MAX = 1_000
NOW = terms.Leaf("$now, which no world has", "eq", 1)


def judge(explained: ExplainedRule, history: Sequence[Event], drawn: random.Random) -> list[Node]:
    """Judge all nodes of an enabled rule, whose history ends with the event. Gives the nodes."""
    judge_why_not(explained, history)
    return list(judge_node(explained.node, explained.rule.condition, list(history), drawn))


def judge_node(
    node: Node, condition: Condition, history: list[Event], drawn: random.Random
) -> Iterable[Node]:
    """Judge a node and all inside it. Gives them."""
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
            # The event is judged as if it belonged to the slice.
            kept = [verdict(condition.where, outer[:place]) for place in range(1, len(outer))]
            there = [event for event, keep in zip(outer, kept, strict=False) if keep]
            history = sliced([*there, outer[-1]], condition.key)
            yield from judge_node(node.nodes[1], condition.where, outer, drawn)
            yield from judge_node(node.nodes[0], condition.inner, history, drawn)
            return
    for member, inner in zip(node.nodes, children(condition), strict=True):
        yield from judge_node(member, inner, history, drawn)


def judge_values(node: Node, event: Event) -> None:
    """What was looked up is shown, and nothing else."""
    match node.condition:
        case terms.Leaf(fact):
            names = [fact]
        case terms.Ref(fact, _, reference):
            names = [fact, reference]
        case terms.InRelation(_, args):
            names = [arg.fact for arg in args if isinstance(arg, terms.FactArg)]
        case terms.Distinct(fact):
            names = [fact]
        case terms.Sum(fact, _, _, _, value) | terms.Avg(fact, _, _, _, value):
            names = [fact, *([value.fact] if isinstance(value, terms.ScaledFact) else [])]
        case _:
            names = []
    assert repr(dict(node.values)) == repr({name: event[name] for name in names if event[name] is not None})
    if node.key is not None:
        assert all(event[name] == value for name, value in node.key.items())
        assert isinstance(node.condition, terms.Keyed)
        assert node.condition.key in node.key


def judge_until(node: Node, history: Sequence[Event], drawn: random.Random) -> None:
    """Until the time given the verdict stays, and just past it it is another."""
    last_us = LATEST_US if node.until_us is None else node.until_us
    windows = {
        window_us(part.window_secs)
        for part, _ in walk(node.condition)
        if isinstance(part, terms.Windowed | terms.Aggregate) and part.window_secs is not None
    }
    edges = {event.time_us + window for event in history for window in windows}
    edges |= {edge + max(1, -(-window // 256)) for edge in edges for window in windows}
    near = {edge + off for edge in edges for off in (-1, 0, 1)}
    probes = sorted(time_us for time_us in near if history[-1].time_us < time_us < last_us)
    for at_us in {*drawn.sample(probes, min(PROBES_MAX, len(probes))), *probes[-1:], last_us}:
        assert verdict(node.condition, history, at_us) is node.verdict, (node, history, at_us)
    if node.until_us is not None:
        assert history[-1].time_us <= node.until_us < LATEST_US
        assert verdict(node.condition, history, last_us + 1) is not node.verdict, (node, history)


def judge_witness(node: Node, history: Sequence[Event]) -> None:
    """The event named settles the verdict. None is named only if no single event does."""
    now_us, given_us = history[-1].time_us, node.witness_us
    parts = [
        [verdict(part, history[: i + 1]) for i in range(len(history))] for part in children(node.condition)
    ]
    held, begun = parts[:1] or [[]], parts[-1:] or [[]]
    left, right = held[0], begun[0]
    since = [place for place, true in enumerate(right) if true and all(left[place + 1 :])]
    window = window_us(node.condition.window_secs) if isinstance(node.condition, terms.Windowed) else math.inf
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
        case terms.Since() | terms.SinceWithin() if not left[-1] and not right[-1]:
            witnesses = [len(history) - 1]
        case terms.Since() | terms.SinceWithin():
            witnesses = since
        case _:
            witnesses = []
    in_time = [history[place].time_us for place in witnesses if now_us - history[place].time_us <= window]
    assert given_us == max(in_time, default=None), (node, history)


def judge_since(node: Node, history: Sequence[Event]) -> None:
    """All events after the time given, but for the one that is explained, had the verdict."""
    for place, event in enumerate(history[:-1], 1):
        if node.since_us is not None and event.time_us > node.since_us:
            assert verdict(node.condition, history[:place]) is node.verdict, (node, history)


def judge_found(node: Node, history: Sequence[Event]) -> None:
    """The number that is compared is what was found; of a count, as far as the comparison needs it."""
    condition = node.condition
    if not isinstance(condition, terms.Aggregate):
        assert node.found is None
    elif isinstance(condition, terms.Count | terms.Distinct):
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
    """The predicates named turn the verdict at a possible event, and no fewer do."""
    condition, given = explained.rule.condition, explained.why_not
    predicates = list(dict.fromkeys(predicates_in(condition)))
    event = history[-1]
    marked = [*history[:-1], Event(event.time_us, event.fields, {**event.vars, NOW.fact[1:]: 1})]

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
    """Give what counts as a predicate: a leaf, or two that are written as one comparison."""
    if is_comparison(condition) or isinstance(condition, terms.Leaf | terms.Ref | terms.InRelation):
        yield condition
        return
    for child in children(condition):
        yield from predicates_in(child)


def is_comparison(condition: Condition) -> bool:
    return isinstance(condition, terms.All) and bool(re.fullmatch(r"\S+ [<>] \S+", format(condition)))


def takes_any_text(predicate: Condition) -> bool:
    """Whether a text that the rule does not name is taken to make it true or false, as is needed."""
    return isinstance(predicate, terms.Leaf) and predicate.op in ("matches", "contains")


class Possible:
    """The events that differ from one in facts, which have any of the values that matter."""

    def __init__(self, predicates: Sequence[Condition], event: Event) -> None:
        self.predicates, self.event = predicates, event
        parts = [part for predicate in predicates for part, _ in walk(predicate)]
        ends: list[Any] = [None, "another", -1e9, 1e9, True, [], ["another"]]
        for part in parts:
            if isinstance(part, terms.Leaf) and part.op != "matches":
                constant = part.value
                listed = part.op in ("in", "nin", "between")
                ends += constant if listed else [list(constant) if isinstance(constant, tuple) else constant]
        numbers = sorted({one for one in ends if type(one) in (int, float)})
        ends += [low / 2 + high / 2 for low, high in pairwise(numbers)]
        ends += [event[name] for predicate in predicates for name in names_of(predicate)]
        self.values = list({repr(one): one for one in ends}.values())

    def is_small(self, several: Iterable[Condition]) -> bool:
        """Whether all events can be tried."""
        names = {name for one in several for name in names_of(one)}
        return len(self.values) ** len(names) <= EVENTS_MAX

    def is_possible(self, several: Iterable[Condition], turns: Callable[[Iterable[Condition]], bool]) -> bool:
        """Whether an event that changes these predicates, and no facts but theirs, turns the verdict."""
        wanted = set(several)
        free = {one for one in wanted if isinstance(one, terms.InRelation)}
        names = sorted({name for one in wanted - free for name in names_of(one)})
        for values in islice(product(self.values, repeat=len(names)), EVENTS_MAX):
            sent = {name[1:]: value for name, value in zip(names, values, strict=True) if name[0] == "$"}
            flat = {name: value for name, value in zip(names, values, strict=True) if name[0] != "$"}
            other = Event(self.event.time_us, {**self.event.fields, **flat}, {**self.event.vars, **sent})
            changed = free | {
                one
                for one in self.predicates
                if not isinstance(one, terms.InRelation)
                and verdict(one, [other]) is not verdict(one, [self.event])
            }
            if wanted <= changed and turns(changed):
                return True
        return False


def names_of(predicate: Condition) -> Iterable[str]:
    """Give the names that a predicate looks up."""
    for part, _ in walk(predicate):
        match part:
            case terms.Leaf(fact):
                yield fact
            case terms.Ref(fact, _, reference):
                yield from (fact, reference)
            case terms.InRelation(_, args):
                yield from (arg.fact for arg in args if isinstance(arg, terms.FactArg))


def turned(condition: Condition, several: frozenset[Condition]) -> Condition:
    """Give a condition in which some predicates are turned at the event that is marked, and at no other."""
    if condition in several:
        both = terms.All((condition, terms.Not(NOW)))
        return terms.Any((both, terms.All((terms.Not(condition), NOW))))
    if is_comparison(condition):
        return condition
    match condition:
        case terms.Leaf() | terms.Ref() | terms.InRelation():
            return condition
        case terms.All(members):
            return terms.All(tuple(turned(member, several) for member in members))
        case terms.Any(members):
            return terms.Any(tuple(turned(member, several) for member in members))
        case terms.Not(inner):
            return terms.Not(turned(inner, several))
        case terms.Once(inner):
            return terms.Once(turned(inner, several))
        case terms.Historically(inner):
            return terms.Historically(turned(inner, several))
        case terms.Since(left, right):
            return terms.Since(turned(left, several), turned(right, several))
        case terms.OnceWithin(inner, window):
            return terms.OnceWithin(turned(inner, several), window)
        case terms.HistoricallyFor(inner, window, boundary):
            return terms.HistoricallyFor(turned(inner, several), window, boundary)
        case terms.SinceWithin(left, right, window):
            return terms.SinceWithin(turned(left, several), turned(right, several), window)
        case terms.Keyed(inner, key, where):
            return terms.Keyed(turned(inner, several), key, where and turned(where, several))
        case terms.Previous(inner):
            return terms.Previous(turned(inner, several))
        case terms.Earlier(inner):
            return terms.Earlier(turned(inner, several))
        case terms.EarlierWithin(inner, window):
            return terms.EarlierWithin(turned(inner, several), window)
        case terms.Count(inner):
            return replace(condition, inner=turned(inner, several))
        case terms.Distinct(_, where) | terms.Sum(_, where) | terms.Avg(_, where):
            return replace(condition, where=where and turned(where, several))
        case _:
            assert_never(condition)
