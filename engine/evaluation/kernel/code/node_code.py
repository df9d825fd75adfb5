"""The code of one node, as functions of what it reads: for explanations, which decide nodes one by one.

The values of facts, and constants, are arguments, so all nodes of one shape share their functions.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from engine.evaluation.facts.values import Relations
from engine.evaluation.kernel.code.event_code import EventCode, Finder, LookupOf
from engine.evaluation.kernel.code.predicates import predicate
from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.kernel.generated import function, indented
from engine.evaluation.operators.table import operator_of
from engine.language import condition as language
from engine.language.condition import Condition, children

_PREDICATE: Final = """\
 def truth(values, fields, vars):
  {values}
  return {truth}
 return truth
"""

_OPERATOR: Final = """\
 def outcome_of(truths, values):
  {truths}
  {values}
  return {outcome}
 def lasting(outcome):
  return {lasting}
 def verdict(outcome, entry, born, seen, base, values):
  now = base >> NUMBER_BITS
  {values}
  return bool({verdict})
 def write(outcome, entry, stamp, values):
  now = stamp >> NUMBER_BITS
  {values}
  {write}
  return entry
 return outcome_of, lasting, verdict, write
"""

SHAPES_KEPT: Final = 256
NODES_KEPT: Final = 256
"""The most shapes, and nodes, whose functions are kept for the next explanation."""


@lru_cache(maxsize=SHAPES_KEPT)
def _functions(source: str) -> Any:
    return function(source, [("memory", _Unweighed())])


class _Unweighed:
    """Stands for a memory where what is written is only looked at: it may become longer than needed."""

    def resized(self, entry: Any) -> None:
        """Count nothing."""

    opened = weigh = resized


class PredicateCode(NamedTuple):
    """A predicate as a function."""

    facts: tuple[str, ...]
    """The facts whose values it takes."""
    constants: tuple[Any, ...]
    """What comes after these values."""
    truth: Callable[..., bool]
    """Gives its truth: (values, fields, vars)."""


class OperatorCode(NamedTuple):
    """A node that looks back as functions. `values` are those of its facts, and its constants after them."""

    facts: tuple[str, ...]
    constants: tuple[Any, ...]
    outcome_of: Callable[..., Any]
    """Gives what an event is to its memory: (truths of its members, values)."""
    lasting: Callable[[Any], Any]
    """Gives the outcome with which its verdict is decided later, as long as no further event comes."""
    verdict: Callable[..., bool]
    """Gives its verdict: (outcome, entry, born, seen, base, values)."""
    write: Callable[..., Any]
    """Gives its entry after an event: (outcome, entry, stamp, values). Changes the entry that is given."""


def predicate_code(
    node: language.Leaf | language.Ref | language.InRelation,
    finder: Finder,
    lookup_of: LookupOf,
    relations: Relations,
) -> PredicateCode:
    """Return a predicate as a function, at events that have these relations."""
    code = _NodeCode(finder, lookup_of, relations)
    truth = predicate(node, code)
    source = _PREDICATE.format(values=code.unpacked(), truth=truth)
    return PredicateCode(code.facts, tuple(code.constants), _functions(source))


@lru_cache(maxsize=NODES_KEPT)
def operator_code(node: Condition) -> OperatorCode:
    """Return a node that looks back as functions."""
    operator = operator_of(node)
    assert operator is not None, node
    code, memory = _OperatorCode(), operator.memory(node)
    members = children(node)
    outcome = memory.outcome([_truth(operand, members) for operand in memory.operands], code)
    verdict, write = operator.verdict(node, code), indented(memory.write(code), 2)
    truths = "".join(f"t{number}, " for number in range(len(members)))
    source = _OPERATOR.format(
        truths=f"{truths}= truths" if truths else "pass",
        values=code.unpacked(),
        outcome=outcome,
        lasting=memory.lasting,
        verdict=verdict,
        write=write,
    )
    return OperatorCode(code.facts, tuple(code.constants), *_functions(source))


def _truth(operand: Condition, members: Sequence[Condition]) -> str:
    """Return the truth of an operand of a memory, by the truths of the node's members."""
    for number, member in enumerate(members):
        if operand is member:
            return f"t{number}"
        if isinstance(member, language.Not) and operand is member.inner:
            return f"(not t{number})"
    assert isinstance(operand, language.Not), "an operand is a member, or the negation of one"
    return f"(not {_truth(operand.inner, members)})"


_NO_USES: Final = Uses(())


class _NodeCode(EventCode):
    """Gives the names by which the code of a node reads the values that it is given."""

    def __init__(self, finder: Finder, lookup_of: LookupOf, relations: Relations | None) -> None:
        super().__init__(_NO_USES, finder, lookup_of)
        self._relations = relations

    @property
    def facts(self) -> tuple[str, ...]:
        """The facts that the code reads."""
        return tuple(self._facts)

    def lookup(self, name: str) -> str:
        """Return the variable of the look-up of a fact."""
        return self.constant(self._lookup_of(name))

    def relations(self) -> str:
        """Return the variable of the relations that an event has."""
        return self.constant(self._relations)

    def unpacked(self) -> str:
        """Return the statement that gives all values their names."""
        names = [f"f{number}, " for number in range(len(self._facts))]
        names += [f"c{number}, " for number in range(len(self.constants))]
        return f"{''.join(names)}= values" if names else "pass"


class _OperatorCode(_NodeCode):
    """Gives also the names by which the code of an operator reads and writes a memory."""

    outcome, entry, born, seen, now = "outcome", "entry", "born", "seen", "now"
    stamp, memory = "stamp", "memory"

    def __init__(self) -> None:
        super().__init__(_nothing, _nothing, None)

    def lasts(self, latest: str) -> str:  # noqa: ARG002 -- what is only looked at may be longer than needed
        """Return the expression for whether a record goes on."""
        return "True"

    def put(self, value: str) -> list[str]:
        """Return the statement that makes a value the entry."""
        return [f"entry = {value}"]

    def clear(self) -> list[str]:
        """Return the statement that leaves no entry."""
        return ["entry = NEVER"]


def _nothing(*names: str) -> object:
    raise AssertionError(f"operators read the values of facts and constants, not {names}")
