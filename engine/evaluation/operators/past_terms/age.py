"""`age`: how long ago a condition was true."""

from collections.abc import Sequence
from typing import Any

from engine.evaluation.operators.interface import Found, Memory, Reading, Triggers
from engine.evaluation.operators.present_terms.now import SECOND
from engine.evaluation.operators.table import values
from engine.evaluation.operators.temporal.latest import Latest
from engine.evaluation.operators.term_interface import Motion, PastTerm, observed
from engine.evaluation.paths import Path
from engine.evaluation.stamps import time_of
from engine.language.terms import Age


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
        held = triggers.holding(self.memory(term), path)
        return triggers.union([held, triggers.true(observed(term.inner), path)])

    def window_us(self, term: Age) -> int | None:  # noqa: ARG002 -- it matters for ever
        return None

    def witness_us(self, past: tuple[Any, Any, int], born: int, now_us: int) -> int | None:
        outcome, entry, _ = past
        return now_us if outcome else time_of(entry) if born < entry else None

    def motion(self, term: Age, operands: Sequence[Motion]) -> Motion:  # noqa: ARG002 -- none
        return Motion.STRAIGHT
