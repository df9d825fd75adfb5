"""Small worlds: every temporal operator and every pair of them, on short traces.

The profile `deep` plays all traces. The others play a sixth of them; to indexed rules, an eighteenth of those
that are one event shorter, each with a last event that is drawn.
"""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any as Json

import hypothesis
import pytest

from engine import Detector
from engine.language.condition import (
    All,
    Avg,
    Condition,
    Count,
    CountSince,
    Distinct,
    Earlier,
    EarlierWithin,
    Historically,
    HistoricallyFor,
    Keyed,
    Leaf,
    Not,
    Once,
    OnceWithin,
    Previous,
    Since,
    SinceWithin,
    Sum,
)
from tests.differential.modes import in_mode
from tests.reference import Event, verdict

P, Q = Leaf("p", "eq", 1), Leaf("q", "eq", 1)
WINDOWS_SECS = (0, 0.001)
AGES_SECS = ((0.002, 0.001), (0.003, 0.002), (0.004, 0.001))
BITS = (0, 1)
Wrap = Callable[[Condition], Condition]

UNARY: tuple[Wrap, ...] = (
    Not,
    Once,
    Historically,
    *(lambda inner, w=w: OnceWithin(inner, w) for w in WINDOWS_SECS),
    *(lambda inner, w=w: HistoricallyFor(inner, w) for w in WINDOWS_SECS),
    *(lambda inner, w=w: HistoricallyFor(inner, w, "strong") for w in WINDOWS_SECS),
)
FEW: tuple[Wrap, ...] = (
    Historically,
    lambda inner: OnceWithin(inner, 0.001),
    lambda inner: HistoricallyFor(inner, 0.001, "strong"),
    lambda inner: SinceWithin(inner, Q, 0.001),
)
COUNTING: tuple[Wrap, ...] = (
    Previous,
    Earlier,
    *(lambda inner, w=w: EarlierWithin(inner, w) for w in WINDOWS_SECS),
    *(lambda inner, a=a: OnceWithin(inner, *a) for a in AGES_SECS),
    *(lambda inner, a=a: HistoricallyFor(inner, a[0], None, a[1]) for a in AGES_SECS),
    *(lambda inner, w=w: Count(inner, w, "gte", 2) for w in (*WINDOWS_SECS, None)),
    lambda inner: Count(inner, 0.001, "eq", 1),
    lambda inner: Count(inner, None, "lt", 2),
    *(lambda inner, w=w: Distinct("p", inner, w, "gt", 1) for w in (*WINDOWS_SECS, None)),
    lambda inner: Distinct("p", inner, 0.001, "eq", 1),
    *(lambda inner, w=w: Sum("p", inner, w, "gte", 2) for w in (*WINDOWS_SECS, None)),
    lambda inner: Avg("p", inner, 0.001, "lt", 1),
)
FEW_COUNTING: tuple[Wrap, ...] = (
    Previous,
    lambda inner: EarlierWithin(inner, 0.001),
    lambda inner: Count(inner, 0.001, "gte", 2),
    lambda inner: Sum("p", inner, 0.001, "lt", 2),
)
FEW_AGED: tuple[Wrap, ...] = (
    lambda inner: OnceWithin(inner, 0.003, 0.001),
    lambda inner: HistoricallyFor(inner, 0.002, "weak", 0.001),
    lambda inner: SinceWithin(Not(inner), inner, 0.003, 0.001),
    lambda inner: CountSince(inner, Not(inner), "gte", 2),
)
BINARY: tuple[Callable[[Condition, Condition], Condition], ...] = (
    lambda left, right: All((left, right)),
    Since,
    *(lambda left, right, w=w: SinceWithin(left, right, w) for w in WINDOWS_SECS),
)

Letter = tuple[int, dict[str, Json]]
"""The milliseconds since the event before, and the fields."""


def letters(pauses_ms: tuple[int, ...], **members: tuple[Json, ...]) -> list[Letter]:
    """Return all events of a small world. A member that is None is absent."""
    fields = [dict(zip(members, row, strict=True)) for row in itertools.product(*members.values())]
    present = [{name: value for name, value in row.items() if value is not None} for row in fields]
    return list(itertools.product(pauses_ms, present))


def keyed_pairs() -> Iterator[Condition]:
    for outer, inner in itertools.product(FEW[1:], FEW):
        yield Keyed(outer(inner(P)), "k")
        yield outer(Keyed(inner(P), "k"))


WORLDS: dict[str, tuple[list[Condition], list[Letter], int]] = {
    "one operator": ([op(P) for op in UNARY], letters((0, 1, 2), p=BITS), 4),
    "two operators": ([f(g(P)) for f in UNARY for g in UNARY], letters((0, 1, 2), p=BITS), 4),
    "two operands": ([op(P, Q) for op in BINARY], letters((0, 1), p=BITS, q=BITS), 4),
    "operators on the left": (
        [op(f(P), Q) for op in BINARY for f in UNARY],
        letters((0, 1), p=BITS, q=BITS),
        3,
    ),
    "operators on the right": (
        [op(P, f(Q)) for op in BINARY for f in UNARY],
        letters((0, 1), p=BITS, q=BITS),
        3,
    ),
    "keys": ([Keyed(f(P), "k") for f in (*UNARY, *FEW)], letters((0, 1), p=BITS, k=(1, 2, None)), 3),
    "keys and operators": (list(keyed_pairs()), [*letters((1,), p=BITS, k=(1, 2)), (1, {"p": 1})], 4),
    "keys in keys": (
        [Keyed(f(Keyed(g(P), "j")), "k") for f in FEW for g in FEW],
        letters((1,), p=BITS, k=(1, 2), j=(1, 2)),
        3,
    ),
}


AGED: tuple[Callable[[Condition, Condition], Condition], ...] = (
    *(lambda left, right, a=a: SinceWithin(left, right, *a) for a in AGES_SECS),
    lambda inner, reset: CountSince(inner, reset, "gte", 2),
    lambda inner, reset: CountSince(inner, reset, "eq", 1),
    lambda inner, reset: CountSince(Not(inner), Not(reset), "lt", 2),
)

WORLDS |= {
    "two operands with ages": ([op(P, Q) for op in AGED], letters((1, 2), p=BITS, q=BITS), 4),
    "two operands by key": (
        [Keyed(op(P, Q), "k") for op in AGED[::2]],
        [*letters((1,), p=BITS, q=BITS, k=(1, 2)), (0, {"p": 1})],
        4,
    ),
    "ages with another operator": (
        [f(g(P)) for f in FEW_AGED for g in (*FEW, *FEW_AGED)] + [f(g(P)) for f in FEW for g in FEW_AGED],
        letters((1, 2), p=BITS),
        4,
    ),
    "counting": ([op(P) for op in COUNTING], letters((0, 1, 2), p=BITS), 4),
    "counting with another operator": (
        [f(g(P)) for f in FEW_COUNTING for g in (*UNARY, *FEW_COUNTING)]
        + [f(g(P)) for f in UNARY for g in FEW_COUNTING],
        letters((0, 1), p=BITS),
        4,
    ),
    "counting by key": ([Keyed(f(P), "k") for f in COUNTING], letters((0, 1), p=BITS, k=(1, 2, None)), 3),
    "keys with where": (
        [
            Keyed(f(P), "k", where)
            for f in (Once, *FEW_COUNTING)
            for where in (Q, Not(Q), Once(Q), Previous(Q))
        ],
        [*letters((0, 1), p=BITS, q=BITS, k=(1,)), (1, {"p": 1, "q": 1})],
        3,
    ),
}


def traces(alphabet: list[Letter], length: int) -> Iterator[tuple[int, ...]]:
    """Return all traces, as numbers of letters. First letters have only one of the pauses."""
    numbers = range(len(alphabet))
    first = [number for number in numbers if alphabet[number][0] == alphabet[0][0]]
    return itertools.product(first, *[numbers] * (length - 1))


def expected(condition: Condition, alphabet: list[Letter]) -> Callable[[tuple[int, ...]], bool]:
    """Return the reference's verdict after a trace."""
    histories: dict[tuple[int, ...], list[Event]] = {(): []}

    def history_of(trace: tuple[int, ...]) -> list[Event]:
        if trace not in histories:
            before = history_of(trace[:-1])
            pause_ms, fields = alphabet[trace[-1]]
            time_us = pause_ms * 1_000 + (before[-1].time_us if before else 0)
            histories[trace] = [*before, Event(time_us, fields, {})]
        return histories[trace]

    return cache(lambda trace: verdict(condition, history_of(trace)))


@pytest.mark.storm
@pytest.mark.parametrize("world", WORLDS)
def test_every_trace_of_a_small_world_is_judged_as_specified(
    world: str, seed: int, record_property: Callable[[str, object], None]
) -> None:
    conditions, alphabet, length = WORLDS[world]
    every = list(traces(alphabet, length))
    whole = hypothesis.settings.get_current_profile_name() == "deep"
    judged = 0
    for number, condition in enumerate(conditions):
        verdicts = expected(condition, alphabet)
        chance = random.Random(f"{seed} {number}")
        # Turning an indexed rule off and on takes several times as long as playing the trace.
        drawn = (
            every
            if whole
            else [
                (*trace, chance.randrange(len(alphabet)))
                for trace in traces(alphabet, length - 1)
                if chance.random() < 1 / 18
            ]
        )
        part = every if whole else [trace for trace in every if chance.random() < 1 / 6]
        for mode, some in (("fused", part), ("indexed", drawn)):
            with in_mode(mode):
                judge(condition, alphabet, some, verdicts)
            judged += len(some)
    record_property("examples", judged)


def judge(
    condition: Condition,
    alphabet: list[Letter],
    some: Iterable[tuple[int, ...]],
    verdicts: Callable[[tuple[int, ...]], bool],
) -> None:
    detector = Detector()
    rule_id = detector.add_rule(name="rule", condition=condition)
    time_ms = 0
    for trace in some:
        # A rule that was turned off and on has no history.
        detector.change_rule(rule_id, enabled=False)
        detector.change_rule(rule_id, enabled=True)
        for place, number in enumerate(trace, start=1):
            pause_ms, fields = alphabet[number]
            time_ms += pause_ms
            fired = bool(detector.evaluate(fields, time_ms))
            assert fired is verdicts(trace[:place]), (condition, [alphabet[n] for n in trace[:place]])
