"""Worlds of stored relations that are put, changed and deleted while rules look them up."""

from dataclasses import dataclass
from typing import Any

from engine.language.condition import (
    All,
    Condition,
    Earlier,
    FactArg,
    Historically,
    InNetwork,
    InRelation,
    Keyed,
    Leaf,
    NetworksOf,
    Not,
    Once,
    OnceWithin,
    Previous,
    Since,
    Some,
)
from tests.worlds.scripts import Add, Change, Remove, Step, Submit, World, timestamp_ms

Tuple = list[Any]

PAIRS = ("pairs", "also pairs")
ONES = ("ones", "networks", "empty")
NAMES = (*ONES, *PAIRS)
VALUES = (0, 1, 1.0, True, "1", "x", 1 << 70, 0.5)
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.1.0.1", "::ffff:10.0.0.1", "2001:db8::1", "fe80::1%0")
NETWORKS = (
    "10.0.0.0/24",
    "10.0.0.1",
    "::ffff:10.0.0.0/104",
    "2001:db8::/32",
    "0.0.0.0/0",
    "10.0.0.0/33",
    "x",
)
STEPS_US = (0, 300_000, 300_001, 1_000_000)


@dataclass(frozen=True)
class Put:
    """A relation is stored."""

    name: str
    tuples: list[Tuple]


@dataclass(frozen=True)
class Amend:
    """Tuples of a relation are removed, and others added."""

    name: str
    add: list[Tuple]
    remove: list[Tuple]


@dataclass(frozen=True)
class Delete:
    """A relation is deleted."""

    name: str


@dataclass(frozen=True)
class Reload:
    """The engine's detector is saved and loaded."""


RelationStep = Put | Amend | Delete | Reload


class RelationsWorld(World):
    """A world of rules about stored relations. Values and tuples are few, so that removed ones return."""

    def predicate(self, *_: Any) -> Condition:
        choose = self.choose
        match choose("ooopppnnsbae"):
            case "o":
                return InRelation(choose(ONES), (FactArg(choose(("a", "b", "$v"))),))
            case "p":
                args = choose(
                    (
                        (FactArg("a"), choose(VALUES)),
                        (choose(VALUES), FactArg("b")),
                        (FactArg("a"), FactArg("b")),
                        (FactArg("a"), FactArg("a")),
                        (choose(VALUES), choose(VALUES)),
                    )
                )
                return InRelation(choose(PAIRS), args)
            case "n":
                return InNetwork(choose(("ip", "ip", "a")), NetworksOf(choose(("networks", "ones"))))
            case "s":
                inside = choose(
                    (
                        InRelation(choose(ONES), (FactArg("it"),)),
                        InRelation(choose(PAIRS), (FactArg("it"), choose(VALUES))),
                        InNetwork("it", NetworksOf("networks")),
                    )
                )
                return Some("list", inside)
            case "a":
                return InRelation(
                    choose(NAMES), (FactArg("a"), choose(VALUES), FactArg("b"))[: choose((0, 3))]
                )
            case _:
                return Leaf(choose("ab"), "eq", choose(VALUES))

    def condition(self, depth: int) -> Condition:
        choose, inner = self.choose, lambda: self.condition(depth - 1)
        if depth == 1:
            return self.predicate()
        match choose("pnaaohkpwsr"):
            case "n":
                return Not(inner())
            case "a":
                return All((inner(), inner()))
            case "o":
                return choose((Once, Earlier))(inner())
            case "h":
                return Historically(inner())
            case "k":
                return Keyed(inner(), choose(("k", "a")))
            case "w":
                return OnceWithin(inner(), choose((0.3, 1)))
            case "s":
                return Since(inner(), inner())
            case "r":
                return Previous(inner())
            case _:
                return self.predicate()

    def tuples(self, name: str) -> list[Tuple]:
        """Return some tuples for a relation."""
        choose = self.choose
        values = ADDRESSES + NETWORKS if name == "networks" else VALUES
        return [[choose(values) for _ in range(1 + (name in PAIRS))] for _ in range(choose((0, 1, 2, 4)))]

    def submission(self, clock_us: int) -> tuple[Submit, int]:
        choose = self.choose
        time_us = clock_us + choose(STEPS_US)
        fields = {name: choose(VALUES) for name in "ab" if choose((False, True, True))}
        fields |= {"k": choose((1, 2)), "ip": choose(ADDRESSES)}
        fields |= {"list": [choose(VALUES + ADDRESSES) for _ in range(choose((0, 2)))]}
        sent = {"v": choose(VALUES)} if choose((False, True)) else None
        if not choose(range(5)):
            name = choose(NAMES)
            sent = {**(sent or {}), name: choose((self.tuples(name), [], None, "none"))}
        return Submit(fields, timestamp_ms(time_us), sent), time_us

    def script(self, *, depth: int = 3, steps_max: int = 40) -> list[Step | RelationStep]:  # type: ignore[override]
        """Return the steps of a detector whose relations change between events."""
        choose = self.choose
        rules = choose((2, 6, 12))
        stored = {name: self.tuples(name) for name in NAMES if choose((False, True, True))}
        steps: list[Step | RelationStep] = [Put(name, tuples) for name, tuples in stored.items()]
        places = choose((0, rules))
        steps[places:places] = [Add(f"rule {number}", self.condition(depth)) for number in range(rules)]
        clock_us = 0
        for number in range(steps_max):
            name = choose(NAMES)
            match choose("eeeeeeeeppmmmdlacx"):
                case "p":
                    stored[name] = self.tuples(name)
                    steps.append(Put(name, stored[name]))
                case "m" if name in stored:
                    remove, add = [one for one in stored[name] if choose((False, True))], self.tuples(name)
                    stored[name] = [one for one in stored[name] if one not in remove] + add
                    steps.append(Amend(name, add, remove))
                case "d" if name in stored:
                    del stored[name]
                    steps.append(Delete(name))
                case "l":
                    steps.append(Reload())
                case "a":
                    steps.append(Add(f"late {number}", self.condition(depth)))
                    rules += 1
                case "c":
                    steps.append(Change(choose(range(rules)), {"condition": self.condition(depth)}))
                case "x" if rules > 1:
                    steps.append(Remove(choose(range(rules))))
                    rules -= 1
                case _:
                    step, clock_us = self.submission(clock_us)
                    steps.append(step)
        return steps
