"""`last`, `prev`, `age`: a fact at one earlier event, and the time since a condition was true."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.evaluation.key_sizes import PLAIN_MAX, value_bytes
from engine.evaluation.operators.interface import Found, Memory, Names, Reading, Settled, Triggers, Writing
from engine.evaluation.operators.memories import Latest, MemoryOfFact
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import Kind, Motion, PastTerm, observed, observed_if
from engine.evaluation.operators.terms.present import SECOND
from engine.evaluation.paths import Path
from engine.evaluation.stamps import time_of
from engine.language.terms import Age, Last, Prev

TEXT_CHARS_MAX: Final = 1 << 18
"""Longer texts are not stored, so that the state without keys is bounded."""

RECORD_BYTES: Final = 130
"""The size of the list and the stamp, without the value."""

VALUE_BYTES_MAX: Final = 4 * TEXT_CHARS_MAX + 100
"""The maximum size of a value."""


@dataclass(frozen=True)
class LatestValue(MemoryOfFact):
    """The stamp and the value of a fact at the latest event at which it was a scalar and `where` was true.

    The outcome is the value.
    """

    columns = ("stamps", "scalars")

    def outcome(self, operands: Sequence[str], names: Names) -> str:
        fact = names.fact(self.fact)
        kept = f"type({fact}) in SCALARS and (type({fact}) is not str or len({fact}) <= {TEXT_CHARS_MAX})"
        tests = [kept, *operands]
        return f"{fact} if {' and '.join(tests)} else None"

    def write(self, to: Writing) -> list[str]:
        value, memory = to.outcome, to.memory
        wide = " or ".join(
            [
                f"type({each}) is str or not -{PLAIN_MAX} < {each} < {PLAIN_MAX}"
                for each in (value, "entry[1]")
            ]
        )
        return [
            f"if {value} is not None:",
            f" if (entry := {to.entry}):",
            f"  if {value} != entry[1] and ({wide}):",
            f"   {memory}.weigh(value_bytes({value}) - value_bytes(entry[1]))",
            f"  entry[0], entry[1] = {to.stamp}, {value}",
            " else:",
            *(f"  {line}" for line in to.put(f"[{to.stamp}, {value}]")),
        ]

    def latest(self, entry: list[Any]) -> int:
        return int(entry[0])

    def length(self, entry: list[Any]) -> int:  # noqa: ARG002 -- it always has one value
        return 1

    def bytes_of(self, entry: list[Any]) -> int:
        return RECORD_BYTES + value_bytes(entry[1])

    def copy(self, entry: list[Any]) -> list[Any]:
        return entry[:]

    def parts(self, entry: list[Any]) -> tuple[Collection[Any], ...]:
        return entry[:1], entry[1:]

    def entry_of(self, *parts: Sequence[Any]) -> list[Any]:
        return [parts[0][0], parts[1][0]]

    def bytes_max(self, keep: int) -> int:  # noqa: ARG002 -- it always has one value
        return RECORD_BYTES + VALUE_BYTES_MAX


@values(Last)
class LastOperator(PastTerm[Any]):
    """The latest value, if it is from after the rule's birth."""

    gives = Kind.SCALAR
    calls = (value_bytes,)

    def memory(self, term: Any) -> Memory:
        return LatestValue(term.fact, observed_if(term.where))

    def value(self, term: Any, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- the entry has it
        return f"(entry[1] if (entry := {read.entry}) and {read.born} < entry[0] else None)"

    def present_at(self, term: Any, triggers: Triggers, path: Path) -> Found:
        return triggers.holding(self.memory(term), path)

    def witness_us(self, term: Any, at: Settled) -> int | None:  # noqa: ARG002 -- the entry suffices
        return time_of(at.entry[0]) if at.entry and at.born < at.entry[0] else None

    def looks_before(self, term: Any) -> bool:  # noqa: ARG002 -- for all terms
        return True


@values(Prev)
class PrevOperator(LastOperator):
    """The latest value, if it is from the last event of the slice."""

    only_next = True

    def memory(self, term: Any) -> Memory:
        return LatestValue(term.fact)

    def value(self, term: Any, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- the entry has it
        return f"(entry[1] if (entry := {read.entry}) and {read.born} < entry[0] == {read.seen} else None)"

    def witness_us(self, term: Any, at: Settled) -> int | None:  # noqa: ARG002 -- the entry suffices
        return time_of(at.seen) if at.entry and at.born < at.entry[0] == at.seen else None


@values(Age)
class AgeOperator(PastTerm[Age]):
    """The seconds since the latest event at which inner was true."""

    def memory(self, term: Age) -> Memory:
        return Latest(observed(term.inner))

    def value(self, term: Age, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- it has none
        since = f"({read.now} - (then >> NUMBER_BITS)) / {SECOND}"
        before = f"({since} if {read.born} < (then := {read.entry}) else NAN)"
        return f"(0.0 if {read.outcome} else {before})"

    def present_at(self, term: Age, triggers: Triggers, path: Path) -> Found:
        return self.memory(term).held_after(triggers, path)

    def witness_us(self, term: Age, at: Settled) -> int | None:  # noqa: ARG002 -- the entry suffices
        return at.now_us if at.outcome else time_of(at.entry) if at.born < at.entry else None

    def motion(self, term: Age, operands: Sequence[Motion]) -> Motion:  # noqa: ARG002 -- none
        return Motion.STRAIGHT
