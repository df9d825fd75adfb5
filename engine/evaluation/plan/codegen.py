"""Generates Python source from shapes. No other file knows how a test, an update or a verdict is written.

Updates of temporal nodes become statements, innermost first, so that no short-circuit skips them; deferred
updates come last. Everything else has no side effects and becomes an expression, where short-circuiting is
safe. The source contains no text of a caller: names and values are numbered constants.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Final, NamedTuple, assert_never

from engine.evaluation.facts.lookups import WALKED_MAX
from engine.evaluation.plan.requirements import OPERATORS
from engine.evaluation.plan.shapes import Aggregate, Junction, Memory, Negation, Predicate, Shape, Slice, Test
from engine.evaluation.plan.temporal import Action, Verdict
from engine.language.operators import COMPARISONS


class Access(NamedTuple):
    """The code that accesses a memory: the expression for its time, and statements for each action."""

    past: str
    write: tuple[str, ...]
    clear: tuple[str, ...]
    keep: tuple[str, ...]

    def of(self, action: Action) -> Iterable[str]:
        """Return the statements for an action."""
        match action:
            case Action.WRITE:
                return self.write
            case Action.BEGIN:
                return [f"if {self.past} == NEVER:", *(f" {line}" for line in self.write)]
            case Action.KEEP:
                return self.keep
            case Action.CLEAR:
                return self.clear
            case _:
                assert_never(action)


class Block:
    """Statements, each of which is skipped if the event has no key of its path."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._path = -1

    def add(self, path: int, lines: Iterable[str]) -> None:
        """Add statements for a path, -1 for every event."""
        if path < 0:
            self.lines += lines
        else:
            if path != self._path:
                self.lines.append(f"if k{path} is not None:")
            self.lines += [f" {line}" for line in lines]
        self._path = path


class Writer(ABC):
    """Writes the statements of shapes; subclasses know how memories are kept.

    In them, `f0` is a fact, `q0` the same if it is a number, `l0` its look-up, `k0` a key, `s0` a slot and
    `c0` a constant.
    """

    def __init__(self, quantities: Collection[int], lookups: Mapping[int, str]) -> None:
        self.quantities = quantities
        """The facts that have a variable `q0`."""
        self.lookups = lookups
        """For each fact that has no variable before it is read, the expression that looks it up."""
        self._updates = Block()
        self._deferred = Block()
        self._verdicts: dict[Hashable, str] = {}
        """The verdict of each node whose update is written, by what `_identity` gives."""

    @property
    def lines(self) -> list[str]:
        """The statements."""
        return [*self._updates.lines, *self._deferred.lines]

    def verdict(self, shape: Shape) -> str:
        """Write the updates of a shape, and give an expression without side effects for its truth."""
        match shape:
            case Predicate():
                return self.predicate(shape)
            case Junction(word, members):
                return "(" + f" {word} ".join([self.verdict(member) for member in members]) + ")"
            case Negation(inner):
                return f"(not {self.verdict(inner)})"
            case Slice():
                return self._slice(shape)
            case Memory(operands=()):
                return self.read(shape)
            case Aggregate(added=None):
                return self._truth(shape)
            case Memory() | Aggregate():
                return self._write_update(shape)
            case _:
                assert_never(shape)

    def predicate(self, predicate: Predicate) -> str:
        """Return an expression for the truth of a predicate."""
        return self._looked_up(predicate.facts, self._test(predicate))

    def _test(self, predicate: Predicate) -> str:
        test, facts, constants, negated, arguments = predicate
        if test == "related":
            own, others = iter(facts), iter(constants)
            given = [
                f"c{next(others)}",
                *(f"f{next(own)}" if fact else f"c{next(others)}" for fact in arguments),
            ]
            return f"relations.holds({', '.join(given)})"
        names = {f"c{place}": f"c{number}" for place, number in enumerate(constants)}
        names["walked_max"] = str(WALKED_MAX)
        for place, number in enumerate(facts):
            names |= {f"f{place}": f"f{number}", f"l{place}": f"l{number}"}
            names |= {f"q{place}": self._quantity(number), f"x{place}": self._number(number)}
        return _TESTS[test, negated].format_map(names)

    def _quantity(self, number: int) -> str:
        return f"q{number}" if number in self.quantities else f"({quantity_of(number)})"

    def _number(self, number: int) -> str:
        return f"q{number}" if number in self.quantities else f"({_number_of(number)})"

    def _looked_up(self, facts: Iterable[int], text: str) -> str:
        """Have an expression look up the facts that no other expression reads."""
        for number in set(facts) & self.lookups.keys():
            text = re.sub(rf"\bf{number}\b", f"(f{number} := {self.lookups[number]})", text, count=1)
        return text

    def _slice(self, piece: Slice) -> str:
        """Return the truth of a slice. What it needs is defined only if the event has a key."""
        where = None if piece.where is None else self.verdict(piece.where)
        tests = [f"k{piece.path} is not None", *self.apply_where(piece.path, where)]
        return f"({' and '.join([*tests, self.verdict(piece.inner)])})"

    def _write_update(self, node: Memory | Aggregate) -> str:
        """Write the update of a node, unless it is written already, and give its verdict."""
        identity = self._identity(node)
        if identity is not None and identity in self._verdicts:
            return self._verdicts[identity]
        if isinstance(node, Aggregate):
            self._write_aggregate(node)
            verdict, deferred = self._truth(node), False
        else:
            deferred = self._write_memory(node)
            verdict = self.read(node)
        if self.is_stored(identity, deferred=deferred):
            variable = f"t{len(self._verdicts)}"
            self._updates.add(node.path, [f"{variable} = {verdict}"])
            verdict = variable
        self._verdicts[identity] = verdict
        return verdict

    def _write_memory(self, memory: Memory) -> bool:
        """Write the update of a memory, and tell whether it is deferred."""
        operands = {name: self.verdict(operand) for name, operand in memory.operands}
        access = self.access(memory)
        operator = OPERATORS[memory.operator]
        lines, word = [], "if"
        for operand, action in operator.update:
            lines.append(f"{word} {operands[operand]}:" if operand else "else:")
            lines += [f" {line}" for line in access.of(action)]
            word = "elif"
        (self._deferred if operator.deferred else self._updates).add(memory.path, lines)
        return operator.deferred

    def _write_aggregate(self, aggregate: Aggregate) -> None:
        assert aggregate.added is not None, "the records are updated"
        added = self.verdict(aggregate.added)
        store, slot = f"c{aggregate.constants[0]}", f"s{aggregate.path}" if aggregate.path >= 0 else "0"
        key = f"k{aggregate.path}" if aggregate.path >= 0 else "None"
        value = "".join(f", f{number}" for number in aggregate.facts[:1])
        add = f"{store}.add({key}, {slot}, now, tick{value})"
        add = f"{slot} = {add}" if aggregate.path >= 0 else add
        self._updates.add(aggregate.path, [f"if {added}: {add}"])

    def _truth(self, aggregate: Aggregate) -> str:
        """Return an expression for the truth of an aggregate, after the update for the event."""
        given = f"c{aggregate.constants[0]}"
        store = f"{given}.store" if aggregate.viewed else given
        slot = f"s{aggregate.path}" if aggregate.path >= 0 else "0"
        if aggregate.measure == "number":
            since = f"{given}.since_us" if aggregate.viewed else "NEVER"
            return f"({_number_compared(aggregate, store, slot, since)})"
        return f"({_sum_compared(aggregate, store, slot)})"

    @abstractmethod
    def access(self, memory: Memory) -> Access:
        """Return the code that accesses a memory."""

    @abstractmethod
    def read(self, memory: Memory) -> str:
        """Return an expression for the truth of a node by its memory."""

    @abstractmethod
    def apply_where(self, path: int, where: str | None) -> list[str]:
        """Write what makes the key of a path None if its `where` is false, or return tests for that."""

    def is_stored(self, identity: Hashable, *, deferred: bool) -> bool:  # noqa: ARG002 -- overridden
        """Return whether a verdict becomes a variable: after its node's update, unless that is `deferred`."""
        return False

    def _identity(self, node: Memory | Aggregate) -> Hashable:  # noqa: ARG002 -- overridden
        """Return what is equal for nodes with one memory; None if no memory is written twice."""
        return None


def quantity_of(number: int) -> str:
    """Return the expression for a fact as a number: NaN, for which no comparison is true, if it is none.

    An integer beyond the doubles is beyond every range.
    """
    fact = f"f{number}"
    beyond = f"type({fact}) is not int or not LEAST <= {fact} <= MOST"
    return f"NAN if type({fact}) is not float and ({beyond}) else {fact}"


def _number_of(number: int) -> str:
    """Return the same for a fact that is compared with both ends of a range, which are doubles."""
    fact = f"f{number}"
    return f"NAN if type({fact}) is not int and type({fact}) is not float else {fact}"


def edge_of(memory: Memory | Aggregate) -> str:
    """Return the oldest time inside a memory's window, always later than NEVER; empty without a window."""
    if len(memory.constants) == 1:
        return ""
    edge = f"now - c{memory.constants[1]}"
    return f"max({edge}, NEVER + 1)" if memory.far else f"({edge})"


def verdict_of(memory: Memory, past: str, since: str = "NEVER", starts: str = "NEVER") -> str:
    """Return an expression for the truth of a node by the time that its memory holds.

    A view ignores the memory up to `since`. For it, a run that started up to then begins at `starts`.
    """
    whole, viewed = _VERDICTS[OPERATORS[memory.operator].verdict]
    template = viewed if memory.viewed else whole
    return f"({template.format(past=past, edge=edge_of(memory), since=since, starts=starts)})"


def _number_compared(aggregate: Aggregate, store: str, slot: str, since: str) -> str:
    """Return an expression for the comparison of how many times or values there are."""
    within = f" >= {edge_of(aggregate)}" if len(aggregate.constants) > 1 else ""
    reached = [f"({since} < {store}.nth({slot}, c{limit}){within})" for limit in aggregate.limits]
    if aggregate.op in ("gte", "lt"):
        truth = reached[0] if reached else "True"
        return truth if aggregate.op == "gte" else f"(not {truth})"
    least = reached[0] if len(reached) > 1 else "True"
    exactly = f"({least} and not {reached[-1]})"
    return exactly if aggregate.op == "eq" else f"(not {exactly})"


def _sum_compared(aggregate: Aggregate, store: str, slot: str) -> str:
    """Return an expression for the comparison of a sum or mean."""
    limit = "limit" if len(aggregate.facts) > 1 else f"c{aggregate.limits[0]}"
    if aggregate.measure == "mean":
        truth = f"found {COMPARISONS[aggregate.op]} {limit}"
        truth = f"((found := {store}.mean({slot}, now)) is not None and {truth})"
    else:
        truth = f"{store}.added({slot}, now)[0] {COMPARISONS[aggregate.op]} {limit}"
    if len(aggregate.facts) == 1:
        return truth
    scaled = f"scaled(f{aggregate.facts[1]}, c{aggregate.limits[0]})"
    return f"((limit := {scaled}) is not None and {truth})"


_NESTED: Final = "type({f0}) is list or type({f0}) is dict"
_OF_ONE: Final[dict[Test, str]] = {
    "boolean": "({f0} is {c0})",
    "zero or one": "({f0} == {c0} and type({f0}) is not bool)",
    "scalar": "({f0} == {c0})",
    "array": "equal({f0}, {c0})",
    "among texts": "(type({f0}) is str and {f0} in {c0})",
    "among numbers": "((type({f0}) is int or type({f0}) is float) and {f0} in {c0})",
    "among many numbers": "((type({f0}) is int or type({f0}) is float) and key_of({f0}) in {c0})",
    "among none": "False",
}
"""Tests of one fact that can be negated."""

_OF_TWO: Final[dict[Test, tuple[str, str]]] = {
    "same": (
        "{f0} is not None and {f1} is not None",
        f"({{l0}}.equals({{f0}}, {{f1}}, {{l1}}) if {_NESTED} else equal({{f0}}, {{f1}}))",
    ),
    "among fact": ("{f0} is not None and type({f1}) is list", "{l1}.holds({f1}, {f0}, {l0})"),
}
"""Tests of two facts: what must hold of them even if the test is negated, and the test."""

_TESTS: Final[dict[tuple[Test, bool], str]] = {
    ("true", False): "True",
    ("true", True): "False",
    ("present", False): "{f0} is not None",
    ("contains text", False): (
        "((type({f0}) is str or type({f0}) is list) and "
        "({c0} in {f0} if len({f0}) <= {walked_max} else {l0}.contains({f0}, {c0})))"
    ),
    ("contains value", False): "(type({f0}) is list and {l0}.holds({f0}, {c0}))",
    ("matches", False): "(type({f0}) is str and {c0}({f0}))",
    ("texts between", False): "(type({f0}) is str and {c0} <= {f0} <= {c1})",
    ("between", False): "({c0} <= {x0} <= {c1})",
    ("at least", False): "({c0} <= {q0})",
    ("at most", False): "({q0} <= {c0})",
    ("above", False): "({c0} < {q0})",
    ("below", False): "({q0} < {c0})",
    ("related by many", False): "relations.holds({c0}, *{c1}(fields, vars))",
    **{(test, False): text for test, text in _OF_ONE.items()},
    **{(test, True): f"({{f0}} is not None and not {text})" for test, text in _OF_ONE.items()},
    **{(test, False): f"({fit} and {text})" for test, (fit, text) in _OF_TWO.items()},
    **{(test, True): f"({fit} and not {text})" for test, (fit, text) in _OF_TWO.items()},
}
"""Each test, and whether it is negated, as an expression.

`{f0}` … stand for facts, `{x0}` … for the same if they are numbers, otherwise NaN, `{q0}` … if they are
numbers up to LARGEST, `{l0}` … for look-ups of facts, `{c0}` … for constants, `{walked_max}` for WALKED_MAX.
Of the places of one fact, the first in the text is evaluated first.
"""

_VERDICTS: Final = {
    Verdict.EVER: ("{past} != NEVER", "{since} < {past}"),
    Verdict.NEVER: ("{past} == NEVER", "not {since} < {past}"),
    Verdict.INSIDE: ("{past} >= {edge}", "{since} < {past} >= {edge}"),
    Verdict.OUTSIDE: ("{past} < {edge}", "not {since} < {past} >= {edge}"),
    Verdict.LONG_AGO: (
        "NEVER < {past} <= {edge}",
        "NEVER < (start := {past}) <= {edge} and (start > {since} or {starts} <= {edge})",
    ),
}
"""Each verdict by the time that a memory holds, and the same if only times later than `{since}` count."""
