"""Compiles the members of the index to rows: a function that many share, and their own constants."""

from collections.abc import Iterable
from typing import Any, Final
from weakref import WeakValueDictionary

from engine.evaluation.kernel.generated import function, indented
from engine.evaluation.kernel.indexing.families import Family
from engine.evaluation.kernel.indexing.row_code import RowCode
from engine.evaluation.kernel.needs import Needs
from engine.evaluation.kernel.selection.known import Known
from engine.evaluation.kernel.selection.row import Row
from engine.evaluation.kernel.site import Site
from engine.evaluation.paths import Path
from engine.evaluation.requirements import requirements_of
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.slices import Remembered
from engine.language.condition import Condition

_ROWS: Final = """\
 def observe(constants, rest, fields, vars, base, tick, relations, fire):
  {lookups}
  {rows}
 return observe
"""

Outcomes = dict[Remembered, Any]
"""The outcomes, at the event, of the memories that it concerns."""


class Rows:
    """Compiles members for one detector."""

    def __init__(self, histories: Histories, needs: Needs, outcomes: Outcomes) -> None:
        self._histories, self._needs, self._outcomes = histories, needs, outcomes
        # A function lives as long as a row uses it.
        self._functions: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()

    def rule(self, condition: Condition, site: Site, known: Known | None, *, selected: bool) -> Row:
        """Compile a rule, which fires where its condition is true."""
        code = self._code((path for _, path in requirements_of(condition, site.births).memories), known)
        tests, first = [], 0
        for test in code.conjuncts(condition, site):
            tests.append(test)
            first = first or code.constants_made
        return self._row(code, tests or ["True"], first, "fire(priority)", selected=selected)

    def family(self, family: Family, site: Site, known: Known | None, *, selected: bool) -> Row:
        """Compile a family, whose rules fire where they are true."""
        condition = family.condition
        code = self._code((path for _, path in requirements_of(condition, site.births).memories), known)
        code.of_family = True
        own = code.constant(family)
        # Mostly no rule is true. The row tells so itself, because calling anything would take much longer.
        tests, first = [], 0
        for test in code.conjuncts(condition, site):
            tests.append(test)
            first = first or code.constants_made
        truth = " and ".join(tests) or "True"
        easiest, *others = tests or ["True"]
        easiest = f"(rank := {own}.highest, born := {own}.easiest) and {easiest}"
        action = f"{own}.fire(lambda rank, born: bool({truth}), fire)"
        return self._row(code, [easiest, *others], first, action, selected=selected)

    def memory(self, remembered: Remembered, site: Site, known: Known | None, *, selected: bool) -> Row:
        """Compile a memory, which puts its outcome into `outcomes`."""
        path, memory = remembered.slices.path, remembered.memory
        inside = [requirements_of(operand, site.births, path).memories for operand in memory.operands]
        code = self._code([path, *(each for memories in inside for _, each in memories)], known)
        outcome = code.outcome(remembered, site)
        own = code.shared_constant(remembered)
        test, kept = memory.notable(outcome)
        if path:
            # Its operands are true or false only where the event belongs to a slice.
            test = f"k{code.number_of(path)} is not None and {test}"
        return self._row(code, [test], code.constants_made, f"outcomes[{own}] = {kept}", selected=selected)

    def _code(self, paths: Iterable[Path], known: Known | None) -> RowCode:
        """Return the code of a member with memories under some paths: only those will stay as long as it."""
        slices = {path: self._histories.slices[path] for path in paths}
        return RowCode(slices, self._needs.patterns.finder, self._needs.lookups.of, known)

    def _row(self, code: RowCode, tests: list[str], first: int, action: str, *, selected: bool) -> Row:
        count = code.constants_made
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
    on the other constants would dominate the cost.
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
