"""Compiles the members of the index to rows: a shared function, and constants."""

from collections.abc import Iterable, Iterator
from typing import Any, Final
from weakref import WeakValueDictionary

from engine.evaluation.facts.values import KEY_CHARS_MAX
from engine.evaluation.generated import function, indented
from engine.evaluation.kernel.buckets.buckets import Row
from engine.evaluation.kernel.buckets.triggers import Known, truth
from engine.evaluation.kernel.code.access import Access
from engine.evaluation.kernel.code.condition_code import ConditionCode
from engine.evaluation.kernel.code.predicates import expensive_last
from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.kernel.indexing.families import Family
from engine.evaluation.kernel.needs import Needs
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.requirements import Births, requirements_of
from engine.evaluation.slices.slices import MORE, Remembered
from engine.evaluation.stamps import NUMBER_BITS
from engine.language import condition as language
from engine.language.condition import Condition
from engine.language.nodes import Node


class EverythingRepeats(Uses):
    """Uses such that every fact is looked up before the loop, and nothing is decided there."""

    def __init__(self) -> None:
        super().__init__(())

    def repeats_fact(self, name: str) -> bool:  # noqa: ARG002 -- for every fact
        """Return True."""
        return True

    def repeats_number(self, name: str, least: int = 2) -> bool:  # noqa: ARG002 -- for every fact
        """Return True."""
        return True

    repeats_address = repeats_fact


class _Access(Access):
    """Reads the same slice for all rows of a loop."""

    def __init__(self, code: "RowCode", *given: Any, **named: Any) -> None:
        super().__init__(code, *given, **named)
        self._of_family = code.of_family

    @property
    def _placeless(self) -> str:
        return f"placeless{self.path}"

    @property
    def born(self) -> str:
        """The variable of the rule's birth, as a stamp."""
        return Family.born if self._of_family else super().born


class RowCode(ConditionCode):
    """The code of one member, for events of which something may be known.

    `paths` are those of its memories: only their slices exist as long as the member.
    """

    finds_relations = False
    ends_max = 0

    def __init__(self, needs: Needs, paths: Iterable[Path], known: Known | None) -> None:
        super().__init__(needs, EverythingRepeats())
        self._own_slices = {path: needs.histories.slices[path] for path in paths}
        self._fact_known = known
        self.of_family = False
        """Whether this is the code of a family, in which the window and the birth are variables."""

    def truth(self, node: Condition, births: Births, path: Path = ()) -> str:
        """Return the expression for the truth of a condition; `True` or `False` if already known."""
        decided = None if self._fact_known is None else truth(node, self._fact_known)
        if decided is not None:
            return str(decided)
        match node:
            case language.Keyed():
                return self._keyed(node, births, path)
            case language.All(members) | language.Any(members) if self._fact_known is not None:
                idle = isinstance(node, language.All)
                left = [one for one in members if truth(one, self._fact_known) is not idle]
                if len(left) < len(members):
                    return super().truth(type(node)(tuple(left)), births, path)
        return super().truth(node, births, path)

    def tests(self, node: Condition, births: Births) -> tuple[list[str], int]:
        """Return expressions that must all be true, and the number of constants in the first."""
        tests, first = [], 0
        for member in expensive_last(node.members if isinstance(node, language.All) else (node,)):
            text = self.truth(member, births)
            if text != "True":
                tests.append(text)
                first = first or len(self.constants)
        return tests or ["True"], first

    def _keyed(self, node: language.Keyed, births: Births, outer: Path) -> str:
        path = births.step(node, outer)
        if path in self._own_slices:
            number = self.number_of(path)
            return f"(k{number} is not None and {self.truth(node.inner, births, path)})"
        fact = self.fact(fact_of(path[-1]))
        short = f"type({fact}) is str and len({fact}) <= {KEY_CHARS_MAX}"
        tests = [f"({short} or slice_key_of({fact}) is not None)"]
        if node.where is not None:
            tests.append(self.truth(node.where, births.of_where(node, outer), outer))
        return f"({' and '.join([*tests, self.truth(node.inner, births, path)])})"

    def number_of(self, path: Path) -> int:
        """Return the number of the path of a memory."""
        number = self._paths.setdefault(path, len(self._paths))
        self._slices[number] = self._own_slices[path]
        return number

    def _access(self, part: Node, births: Births, path: Path) -> Access:
        remembered, number = self._histories.of(part, path, births.birth), self.number_of(path)
        memory = self.shared_constant(remembered)
        place = self.constant(remembered.place)
        idle = remembered.memory.idle
        outcome = f"outcome_of({memory})" if idle == "None" else f"outcome_of({memory}, {idle})"
        return _Access(self, remembered, outcome=outcome, path=number, born=births.born, place=place)

    def outcome(self, remembered: Remembered, births: Births) -> str:
        """Return the expression for the outcome of a memory."""
        path = remembered.slices.path
        self.number_of(path)
        truths = [self.truth(operand, births, path) for operand in remembered.memory.operands]
        return remembered.memory.outcome(truths, self)

    def entered(self) -> list[str]:
        """Return the statements that read the keys and slices of the event."""
        lines = ["outcome_of = outcomes.get"]
        for number in self._slices:
            lines.append(f"k{number}, s{number} = table{number}.key, table{number}.slice")
            lines.append(f"placeless{number} = (s{number}[{MORE}] or NOTHING).get")
        return lines

    def edge(self, window_us: int) -> str:
        """Return the expression for the edge of a window, as a stamp, with a constant of the row."""
        return Family.edge if self.of_family else f"base - {self.constant(window_us << NUMBER_BITS)}"

    def tables(self) -> Iterator[tuple[str, Any]]:
        """Yield the slices, from which the code reads the event's key and slice."""
        for number, slices in self._slices.items():
            yield f"table{number}", slices


_ROWS: Final = """\
 def observe(constants, rest, fields, vars, base, tick, relations, fire):
  {lookups}
  {rows}
 return observe
"""

Outcomes = dict[Remembered, Any]
"""The outcomes of an event for the memories that it concerns."""


class Rows:
    """Compiles members for one detector."""

    def __init__(self, needs: Needs, outcomes: Outcomes) -> None:
        self._needs, self._outcomes = needs, outcomes
        # A function lives as long as a row uses it.
        self._functions: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()

    def rule(self, condition: Condition, births: Births, known: Known | None, *, selected: bool) -> Row:
        """Compile a rule, which fires if its condition is true."""
        code = RowCode(self._needs, (use.path for use in requirements_of(condition, births).memories), known)
        tests, first = code.tests(condition, births)
        return self._row(code, tests, first, "fire(priority)", selected=selected)

    def family(self, family: Family, known: Known | None, *, selected: bool) -> Row:
        """Compile a family, which fires those of its rules that are true."""
        condition, births = family.condition, family.births
        code = RowCode(self._needs, (use.path for use in requirements_of(condition, births).memories), known)
        code.of_family = True
        own = code.constant(family)
        # Mostly no rule is true. The row tests this itself, because a call would take much longer.
        tests, first = code.tests(condition, births)
        truth = " and ".join(tests)
        easiest, *others = tests
        easiest = f"(rank := {own}.highest, born := {own}.easiest) and {easiest}"
        action = f"{own}.fire(lambda rank, born: bool({truth}), fire)"
        return self._row(code, [easiest, *others], first, action, selected=selected)

    def memory(self, remembered: Remembered, births: Births, known: Known | None, *, selected: bool) -> Row:
        """Compile a memory, which puts its outcome into `outcomes`."""
        path, memory = remembered.slices.path, remembered.memory
        inside = [requirements_of(operand, births, path).memories for operand in memory.operands]
        code = RowCode(self._needs, [path, *(use.path for uses in inside for use in uses)], known)
        outcome = code.outcome(remembered, births)
        own = code.shared_constant(remembered)
        test, kept = memory.notable(outcome)
        if path:
            # Operands have truths only if the event belongs to a slice.
            test = f"k{code.number_of(path)} is not None and {test}"
        return self._row(code, [test], len(code.constants), f"outcomes[{own}] = {kept}", selected=selected)

    def _row(self, code: RowCode, tests: list[str], first: int, action: str, *, selected: bool) -> Row:
        count = len(code.constants)
        first = 0 if selected else first
        given = [*code.given(constants=False), *code.tables(), ("outcomes", self._outcomes)]
        source = _ROWS.format(
            lookups=indented([*code.lookups(), *code.entered()], 2),
            rows=indented(_loop(tests, action, first, count, selected=selected), 2),
        )
        name = (source, *[value if isinstance(value, str | tuple) else id(value) for _, value in given])
        observe = self._functions.get(name)
        if observe is None:
            observe = self._functions[name] = function(source, given)
        constants = code.constants
        return Row(observe, constants[:first], constants[first:])


def _loop(tests: list[str], action: str, first: int, count: int, *, selected: bool) -> list[str]:
    """Return the loop over rows.

    If the first test of a row fails, only the constants of that test are read. With many rows, cache misses
    on the other constants would dominate the time.
    """
    if selected:
        return [f"for {_numbered(range(count))}priority, _ in rest:", f" if {' and '.join(tests)}: {action}"]
    if not first:
        each = ", ".join(["each"] * (count + 1))
        return [
            "each = iter(rest)",
            f"for {_numbered(range(count))}priority, in zip({each}):",
            f" if {' and '.join(tests)}: {action}",
        ]
    width = count + 1 - first
    columns = "c0 in constants[0]" if first == 1 else f"{_numbered(range(first))} in zip(*constants)"
    others = f"{_numbered(range(first, count))}priority, = rest[place : place + {width}]"
    return [
        f"place = -{width}",
        f"for {columns}:",
        f" place += {width}",
        f" if {tests[0]}:",
        f"  {others}" if width > 1 else "  priority = rest[place]",
        f"  if {' and '.join(tests[1:]) or 'True'}: {action}",
    ]


def _numbered(numbers: Iterable[int]) -> str:
    return "".join(f"c{number}, " for number in numbers)
