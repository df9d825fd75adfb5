"""The executable specification of the limit on live keys, and worlds to test it with.

A key is live while the history of its slice can still change a verdict. Beyond the limit, the least
recently seen live key is evicted: its slice starts again without a history, and the reply says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from engine import Detector, Limits
from engine.language.condition import (
    Condition,
    Count,
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
from tests.reference import Event, verdict

P, Q = Leaf("p", "eq", 1), Leaf("q", "eq", 1)
WINDOW_SECS, WINDOW_US = 1, 1_000_000
AWAITED: tuple[Condition, ...] = (
    Once(P),
    Historically(Not(P)),
    Since(Not(Q), P),
    OnceWithin(P, WINDOW_SECS),
    HistoricallyFor(Not(P), WINDOW_SECS),
    HistoricallyFor(P, WINDOW_SECS, "strong"),
    SinceWithin(Not(Q), P, WINDOW_SECS),
)
"""One temporal member each, so that one more event tells whether the past makes a difference. What changes
what these remember can be told from an event."""

CLOCKED: tuple[Condition, ...] = (
    Once(Not(P)),
    Historically(P),
    Since(P, Not(P)),
    OnceWithin(Not(P), WINDOW_SECS),
    HistoricallyFor(P, WINDOW_SECS),
    HistoricallyFor(Not(P), WINDOW_SECS, "strong"),
    SinceWithin(Not(Q), Not(P), WINDOW_SECS),
)
"""These change with any event that lacks something."""

COUNTED: tuple[Condition, ...] = (
    Previous(P),
    Earlier(P),
    EarlierWithin(P, WINDOW_SECS),
    Count(P, WINDOW_SECS, "gte", 2),
    Count(Not(P), WINDOW_SECS, "lt", 2),
    Count(P, None, "eq", 1),
    Distinct("p", None, WINDOW_SECS, "gt", 1),
    Sum("p", P, WINDOW_SECS, "gte", 2),
    Sum("p", P, None, "gte", 2),
)

INNER = AWAITED + CLOCKED + COUNTED

LASTING = AWAITED[:2]
"""Conditions that never expire: a live key stays live for ever."""

EXPIRING = AWAITED[3:5] + CLOCKED[3:5] + COUNTED[2:5] + COUNTED[6:8]
"""Conditions that expire with their window."""

Path = tuple[str, ...]
Key = tuple[Path, tuple[Any, ...]]


Answer = tuple[list[bool], bool]
"""The verdict of each rule, and whether keys were evicted."""


class BoundedReference:
    """Rules of one temporal member under a path of keys, of which at most `keys_max` are live."""

    def __init__(self, rules: Sequence[tuple[Path, Condition]], keys_max: int) -> None:
        self.rules = {place: (*rule, 0) for place, rule in enumerate(rules)}
        """For each rule, by its index: its path, its member, and the number of events before it."""
        self.keys_max = keys_max
        self.slices: dict[Key, list[tuple[int, Event]]] = {}
        """The events by key, with their numbers; the least recently seen key first."""
        self.count = 0

    def past(self, key: Key, birth: int) -> list[Event]:
        """Return the events of a slice that count for a rule."""
        return [event for number, event in self.slices[key] if number > birth]

    def live(self, key: Key, now_us: int) -> bool:
        """Return whether the slice changes the verdict of some next event, now or a window later."""
        nexts = [Event(now_us + wait, {"p": p}, {}) for wait in (0, WINDOW_US) for p in (0, 1)]
        pasts = [
            (inner, self.past(key, birth)) for path, inner, birth in self.rules.values() if path == key[0]
        ]
        return any(
            verdict(inner, [*past, event]) is not verdict(inner, [event])
            for inner, past in pasts
            for event in nexts
        )

    def observe(self, event: Event, places: int) -> Answer:
        """Return the verdicts of this many rules, by index, and whether keys were evicted."""
        self.count += 1
        for path in {path for path, *_ in self.rules.values()}:
            key = (path, tuple(event[name] for name in path))
            if None not in key[1]:
                self.slices[key] = [*self.slices.pop(key, []), (self.count, event)]
        seen_now = {key[0]: key for key, past in self.slices.items() if past[-1][0] == self.count}
        verdicts = [False] * places
        for place, (path, inner, birth) in self.rules.items():
            verdicts[place] = path in seen_now and verdict(inner, self.past(seen_now[path], birth))
        live = [key for key in self.slices if self.live(key, event.time_us)]
        evicted = live[: max(0, len(live) - self.keys_max)]
        for key in evicted:
            del self.slices[key]
        return verdicts, bool(evicted)


Submission = tuple[dict[str, Any], float]


@dataclass(frozen=True)
class BoundedWorld:
    """Rules and events of a detector that keeps few keys. No event shows two keys: none are equally old."""

    rules: list[tuple[Path, Condition]]
    keys_max: int
    events: list[Submission]
    disabled_before: int
    """The event before which a rule is turned off: the last rule or, if there is a twin, the rule it
    equals."""
    twin: tuple[int, int] | None = None
    """The event before which a rule equal to another one is added, and the index of that other rule."""

    @classmethod
    def drawn(cls, choose: Any, inner: Sequence[Condition] = INNER) -> Self:
        """Return a world; `choose` takes each decision."""
        paths = choose(([("u",)], [("u", "v")], [("u",), ("v",)]))
        rules = [(path, choose(inner)) for path in paths for _ in choose(((0,), (0, 0)))]
        events: list[Submission] = []
        time_ms = 0
        for _ in range(choose(range(8, 30))):
            time_ms += choose((0, 1, 1, 400, 999, 1000, 1001, 2500))
            shown = {name: choose((1, 2, 3, 4)) for name in choose(paths)}
            events.append(({"p": choose((0, 1, 1)), "q": choose((0, 0, 1)), **shown}, time_ms))
        return cls(rules, choose((1, 2, 3)), events, choose(range(len(events) * 3 // 2)))

    @classmethod
    def with_many_keys(cls, choose: Any, expiring: Sequence[Condition] = EXPIRING) -> Self:
        """Return a world in which more keys expire at once than an event sweeps; then keys are evicted."""
        rules = [(("u",), choose(LASTING)), (("v",), choose(expiring))]
        events: list[Submission] = []
        time_ms = 0
        for _ in range(60):
            time_ms += choose((1, 1, 1, 1, 1, 1, 30, 400))
            events.append(({"p": choose((0, 1, 1, 1)), choose("uvv"): choose(range(14))}, time_ms))
        return cls(rules, choose((8, 10, 12)), events, choose(range(90)))

    @classmethod
    def with_twins(cls, choose: Any) -> Self:
        """Return a world in which a late rule may share the state of another one."""
        world = cls.drawn(choose)
        late = choose(range(len(world.events) // 2))
        disabled_before = choose(range(late, len(world.events) * 3 // 2))
        return replace(world, twin=(late, choose(range(len(world.rules)))), disabled_before=disabled_before)

    @property
    def places(self) -> list[tuple[Path, Condition]]:
        """The rules, the late one last."""
        return self.rules if self.twin is None else [*self.rules, self.rules[self.twin[1]]]

    @property
    def disabled(self) -> int:
        """The index of the rule that is turned off."""
        return len(self.rules) - 1 if self.twin is None else self.twin[1]

    def conditions(self) -> Iterator[Condition]:
        for path, inner in self.places:
            condition = inner
            for name in reversed(path):
                condition = Keyed(condition, name)
            yield condition

    def expected(self) -> list[Answer]:
        reference = BoundedReference(self.rules, self.keys_max)
        answers: list[Answer] = []
        for number, (fields, time_ms) in enumerate(self.events):
            if self.twin is not None and number == self.twin[0]:
                reference.rules[len(self.rules)] = (*self.places[-1], number)
            if number == self.disabled_before:
                del reference.rules[self.disabled]
            answers.append(reference.observe(Event(time_ms * 1_000, fields, {}), len(self.places)))
        return answers

    def given(self, *, reloaded: bool = False) -> Iterator[Answer]:
        limits = replace(Limits(), keys_max=self.keys_max)
        detector = Detector(limits=limits)
        conditions = [*self.conditions()]
        ids = [detector.add_rule(name="rule", condition=each) for each in conditions[: len(self.rules)]]
        if self.disabled_before % 2:
            # Nothing has been yet, so nothing is lost; but what rules remember is now in another order.
            detector.change_rule(ids[0], enabled=False)
            detector.change_rule(ids[0], enabled=True)
        for number, (fields, time_ms) in enumerate(self.events):
            if self.twin is not None and number == self.twin[0]:
                ids.append(detector.add_rule(name="twin", condition=conditions[-1]))
            if number == self.disabled_before:
                detector.change_rule(ids[self.disabled], enabled=False)
            outcome = detector.submit(fields, time_ms)
            fired = {action["ruleId"] for action in outcome.actions}
            evicted = any(message.code == 2002 for message in outcome.messages)
            missing = [False] * (len(conditions) - len(ids))
            yield [rule_id in fired for rule_id in ids] + missing, evicted
            # Late, when much has come about: what is loaded is in better order than what lived.
            if reloaded and number > len(self.events) * 2 // 3:
                detector = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=limits)

    def disagreement(self, expected: list[Answer] | None = None, *, reloaded: bool = False) -> str | None:
        """Return where the engine and the reference differ, or None."""
        pairs = zip(expected or self.expected(), self.given(reloaded=reloaded), strict=True)
        for place, (wanted, given) in enumerate(pairs):
            if wanted != given:
                rules = "\n".join(map(repr, self.conditions()))
                events = "\n".join(map(repr, self.events[: place + 1]))
                bounds = (
                    f"at most {self.keys_max} keys, rule {self.disabled} off before {self.disabled_before}"
                )
                bounds += f", the last one added at {self.twin[0]}" if self.twin else ""
                return f"{bounds}\n{rules}\n{events}\nexpected {wanted}, given {given}"
        return None
