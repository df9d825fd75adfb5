"""`last`: the value of a fact at the latest event before the current one at which it was a scalar."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.evaluation.key_sizes import PLAIN_MAX, value_bytes
from engine.evaluation.operators.interface import Found, Memory, Names, Reading, Triggers, Writing
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import Kind, PastTerm, observed_if
from engine.evaluation.paths import Path
from engine.evaluation.stamps import time_of
from engine.language.condition import Condition
from engine.language.terms import Last

TEXT_CHARS_MAX: Final = 1 << 18
"""Longer texts are not remembered, so that what is kept without keys has a bound."""

RECORD_BYTES: Final = 130
"""What the list and the stamp take, without the value."""

VALUE_BYTES_MAX: Final = 4 * TEXT_CHARS_MAX + 100
"""The most that a value takes."""


@dataclass(frozen=True)
class LatestValue(Memory):
    """The stamp and the value of a fact at the latest event at which it was a scalar, and `where` was true.

    The outcome is the value, or None if the event does not count.
    """

    is_record = True
    columns = ("stamps", "scalars")
    fact: str
    where: Condition | None = None

    @property
    def operands(self) -> tuple[Condition, ...]:
        return () if self.where is None else (self.where,)

    def outcome(self, operands: Sequence[str], names: Names) -> str:
        fact = names.fact(self.fact)
        kept = f"type({fact}) in SCALARS and (type({fact}) is not str or len({fact}) <= {TEXT_CHARS_MAX})"
        tests = [kept, *operands]
        return f"{fact} if {' and '.join(tests)} else None"

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        where = None if self.where is None else triggers.true(self.where, path)
        return triggers.best([triggers.present(self.fact), where])

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

    def length(self, entry: list[Any]) -> int:  # noqa: ARG002 -- it always has one
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
class LastOperator(PastTerm[Last]):
    """The latest value, if it came after the rule's birth."""

    calls = (value_bytes,)

    def kind(self, term: Last) -> Kind:  # noqa: ARG002 -- all are the same
        return Kind.SCALAR

    def memory(self, term: Last) -> Memory:
        return LatestValue(term.fact, observed_if(term.where))

    def value(self, term: Last, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- the entry has it
        return f"(entry[1] if (entry := {read.entry}) and {read.born} < entry[0] else None)"

    def present_at(self, term: Last, triggers: Triggers, path: Path) -> Found:
        return triggers.holding(self.memory(term), path)

    def window_us(self, term: Last) -> int | None:  # noqa: ARG002 -- it matters for ever
        return None

    def witness_us(self, past: tuple[Any, Any, int], born: int, now_us: int) -> int | None:  # noqa: ARG002 -- it was before
        _, entry, _ = past
        return time_of(entry[0]) if entry and born < entry[0] else None

    def looks_before(self, term: Last) -> bool:  # noqa: ARG002 -- always
        return True
