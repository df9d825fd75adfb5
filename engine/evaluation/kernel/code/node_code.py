"""The code of one node, as functions of its inputs, for explanations, which decide nodes one by one.

The values of facts and constants are arguments, so all nodes of one shape share their functions.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from engine.evaluation.facts.relations import Relations
from engine.evaluation.generated import function, indented
from engine.evaluation.kernel.code.access import is_inside
from engine.evaluation.kernel.code.event_code import LookupOf, Patterns
from engine.evaluation.kernel.code.predicates import PresentCode
from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.operators.compare import Names, comparison, found_in, values_of
from engine.evaluation.operators.table import operator_of, parts_of, remembering
from engine.language import condition as language
from engine.language.condition import Condition, Predicate, children
from engine.language.nodes import TermNode

_PREDICATE: Final = """\
 def truth(values, fields, vars, base):
  now = base >> NUMBER_BITS
  {values}
  return {truth}
 return truth
"""

_MEMORY: Final = """\
 def outcome_of(truths, values):
  {truths}
  {values}
  return {outcome}
 def lasting(outcome):
  return {lasting}
 def write(outcome, entry, stamp, values):
  now = stamp >> NUMBER_BITS
  {values}
  {write}
  return entry
 return outcome_of, lasting, write
"""

_VERDICT: Final = """\
 def verdict(pasts, base, values):
  now = base >> NUMBER_BITS
  {pasts}
  {values}
  return bool({verdict})
 def found(pasts, base, values):
  now = base >> NUMBER_BITS
  {pasts}
  {values}
  return {found}
 return verdict, found
"""

SHAPES_KEPT: Final = 256
NODES_KEPT: Final = 256
"""The maximum numbers of shapes and of nodes whose functions are kept for the next explanation."""


@lru_cache(maxsize=SHAPES_KEPT)
def _functions(source: str) -> Any:
    return function(source, [("memory", _Unweighed())])


class _Unweighed:
    """Stands for a memory if an entry is only read: its size does not count, and it may be too long."""

    keep = 0

    def resized(self, entry: Any) -> None:
        """Count nothing."""

    weigh = resized


class PredicateCode(NamedTuple):
    """A predicate as a function."""

    facts: tuple[str, ...]
    """The facts that it takes as values."""
    constants: tuple[Any, ...]
    """The values after those of facts."""
    truth: Callable[..., bool]
    """Returns its truth: (values, fields, vars, base)."""


class MemoryCode(NamedTuple):
    """A memory as functions. `values` are those of its facts, followed by its constants."""

    facts: tuple[str, ...]
    constants: tuple[Any, ...]
    outcome_of: Callable[..., Any]
    """Returns the outcome of an event: (truths of the members of its node, values)."""
    lasting: Callable[[Any], Any]
    """Returns the outcome for later verdicts, while no further event comes."""
    write: Callable[..., Any]
    """Returns its entry after an event: (outcome, entry, stamp, values). Changes the given entry."""


class VerdictCode(NamedTuple):
    """The verdict of a node that looks back or compares terms, as functions.

    They take (pasts, base, values). For each part of the node with a memory, `pasts` has the outcome, the
    entry, the stamp of the last event of its slice, and its birth as a stamp.
    """

    facts: tuple[str, ...]
    constants: tuple[Any, ...]
    verdict: Callable[..., bool]
    found: Callable[..., tuple[Any, ...]]
    """Returns the values of the terms in `found_in`."""


def predicate_code(
    node: Predicate | language.Compare,
    patterns: Patterns,
    lookup_of: LookupOf,
    relations: Relations,
) -> PredicateCode:
    """Return a predicate as a function, for events with these relations.

    A comparison counts as a predicate if its terms do not look back.
    """
    code: _NodeCode
    if isinstance(node, language.Compare):
        code, names = _code_of_terms(node)
        truth = comparison(node, names)
    else:
        code = _NodeCode(patterns, lookup_of, relations)
        truth = code.predicate(node)
    source = _PREDICATE.format(values=code.unpacked(), truth=truth)
    return PredicateCode(code.facts, tuple(code.constants), _functions(source))


@lru_cache(maxsize=NODES_KEPT)
def memory_code(node: Condition, part: int) -> MemoryCode:
    """Return a memory of a node as functions, given the place of its part."""
    members, of_part = children(node), parts_of(node)[part]
    memory = remembering(of_part).memory(of_part)
    code = _PastCode("()" if memory.is_record else "NEVER")
    outcome = memory.outcome([_truth(operand, members) for operand in memory.operands], code)
    write = indented(memory.write(code), 2)
    truths = "".join(f"t{number}, " for number in range(len(members)))
    source = _MEMORY.format(
        truths=f"{truths}= truths" if truths else "pass",
        values=code.unpacked(),
        outcome=outcome,
        lasting=memory.lasting,
        write=write,
    )
    return MemoryCode(code.facts, tuple(code.constants), *_functions(source))


@lru_cache(maxsize=NODES_KEPT)
def verdict_code(node: Condition) -> VerdictCode:
    """Return the verdict of a node that looks back or compares terms, as functions."""
    code, found = _PastCode("NEVER"), "()"
    if isinstance(node, language.Compare):
        code, names = _code_of_terms(node)
        verdict, found = comparison(node, names), values_of(found_in(node), names)
    else:
        operator = operator_of(node)
        assert operator is not None, node
        verdict = operator.verdict(node, code)
    # The code of terms has variables of its own, such as `entry`.
    first = 1 if isinstance(node, language.Compare) else 0
    pasts = "".join(f"({_past(first + part)}), " for part in range(len(parts_of(node))))
    source = _VERDICT.format(
        pasts=f"{pasts}= pasts" if pasts else "pass",
        values=code.unpacked(),
        verdict=verdict,
        found=found,
    )
    return VerdictCode(code.facts, tuple(code.constants), *_functions(source))


def _past(part: int) -> str:
    """Return the variables of a part: outcome, entry, last event, birth. Part 0 has no number."""
    number = part or ""
    return f"outcome{number}, entry{number}, seen{number}, born{number}"


def _truth(operand: Condition, members: Sequence[Condition]) -> str:
    """Return the truth of a memory's operand, in terms of the truths of the node's members."""
    for number, member in enumerate(members):
        if operand is member:
            return f"t{number}"
        if isinstance(member, language.Not) and operand is member.inner:
            return f"(not t{number})"
    assert isinstance(operand, language.Not), "an operand is a member, or the negation of one"
    return f"(not {_truth(operand.inner, members)})"


_NO_USES: Final = Uses(())


class _NodeCode(PresentCode):
    """Provides the names by which the code of a node reads its arguments."""

    def __init__(self, patterns: Patterns, lookup_of: LookupOf, relations: Relations | None) -> None:
        super().__init__(_NO_USES, patterns, lookup_of)
        self._relations = relations

    @property
    def facts(self) -> tuple[str, ...]:
        """The facts that the code reads."""
        return tuple(self._facts)

    def lookup(self, name: str) -> str:
        """Return the variable of the look-up of a fact."""
        return self.constant(self._lookup_of(name))

    def relations(self) -> str:
        """Return the variable of the event's relations."""
        return self.constant(self._relations)

    def unpacked(self) -> str:
        """Return the statement that unpacks the values into variables."""
        names = [f"f{number}, " for number in range(len(self._facts))]
        names += [f"c{number}, " for number in range(len(self.constants))]
        return f"{''.join(names)}= values" if names else "pass"


class _PastCode(_NodeCode):
    """Also provides the names by which the code of an operator reads and writes a memory."""

    outcome, entry, born, seen, now = "outcome", "entry", "born", "seen", "now"
    stamp, memory = "stamp", "memory"
    keep = 0

    def __init__(self, blank: str) -> None:
        """`blank` is the entry without state."""
        # An operator has no patterns of its own.
        super().__init__(cast("Any", None), cast("Any", _nothing), None)
        self._blank = blank

    def lasts(self, latest: str) -> str:  # noqa: ARG002 -- an entry that is only read may be too long
        """Return the expression for whether a record can still matter."""
        return "True"

    def inside(self, window_us: int | None) -> str:
        """Return the expression for whether the entry, a stamp, is after the birth and inside a window."""
        return is_inside(self, window_us)

    def put(self, value: str) -> list[str]:
        """Return the statement that sets the entry."""
        return [f"entry = {value}"]

    def clear(self) -> list[str]:
        """Return the statement that clears the entry."""
        return [f"entry = {self._blank}"]


class _Part:
    """Provides the names by which the code of a term reads its own memory; others are those of `code`."""

    def __init__(self, code: _PastCode, part: int) -> None:
        self._code = code
        self.outcome, self.entry, self.seen, self.born = _past(part).split(", ")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._code, name)


def _code_of_terms(node: language.Compare) -> tuple[_PastCode, Names]:
    """Return the code of a comparison, and the names by which it reads its arguments."""
    code, parts = _PastCode("NEVER"), parts_of(node)

    def reading(term: TermNode) -> Any:
        for number, part in enumerate(parts, 1):
            if part is term:
                return _Part(code, number)
        return code

    return code, Names(code.constant, reading)


def _nothing(*names: str) -> object:
    raise AssertionError(f"operators read the values of facts and constants, not {names}")
