"""`prev`: the value of a fact at the event directly before the current one."""

from collections.abc import Sequence
from typing import Any

from engine.evaluation.key_sizes import value_bytes
from engine.evaluation.operators.interface import Found, Memory, Reading, Triggers
from engine.evaluation.operators.past_terms.last import LatestValue
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import Kind, PastTerm
from engine.evaluation.paths import Path
from engine.evaluation.stamps import time_of
from engine.language.terms import Prev


@values(Prev)
class PrevOperator(PastTerm[Prev]):
    """The latest value, if it is of the last event of the slice."""

    only_next = True
    calls = (value_bytes,)

    def kind(self, term: Prev) -> Kind:  # noqa: ARG002 -- all are the same
        return Kind.SCALAR

    def memory(self, term: Prev) -> Memory:
        return LatestValue(term.fact)

    def value(self, term: Prev, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- the entry has it
        return f"(entry[1] if (entry := {read.entry}) and {read.born} < entry[0] == {read.seen} else None)"

    def present_at(self, term: Prev, triggers: Triggers, path: Path) -> Found:
        return triggers.holding(self.memory(term), path)

    def window_us(self, term: Prev) -> int | None:  # noqa: ARG002 -- the next event may come at any time
        return None

    def witness_us(self, past: tuple[Any, Any, int], born: int, now_us: int) -> int | None:  # noqa: ARG002 -- it was before
        _, entry, seen = past
        return time_of(seen) if entry and born < entry[0] == seen else None

    def looks_before(self, term: Prev) -> bool:  # noqa: ARG002 -- always
        return True

    def turns_us(self, term: Prev, entry: Any) -> tuple[int, ...]:  # noqa: ARG002 -- time changes nothing
        return ()
