"""A bound on the work of compiling a detector's patterns, which is repeated at each activation."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from engine.evaluation.requirements import requirements_of
from engine.language.condition import Condition
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits
from engine.patterns.compiled_pattern import compile_pattern

_FULL: Final = 1400


class Preparation:
    """The different patterns of a detector's rules, even disabled ones, and the work of compiling them."""

    def __init__(self, conditions: Iterable[Condition], limits: Limits) -> None:
        self._limits = limits
        self._uses = Counter[str]()
        self.work = 0
        for condition in conditions:
            self.add(condition)

    def check(self, new: Condition, instead_of: Condition | None = None) -> None:
        """Raise Refusal 1400 if a new condition needs too much work. It may replace another condition."""
        coming = _patterns(new)
        more = sum(self._work_of(pattern) for pattern in coming if not self._uses[pattern])
        going = _patterns(instead_of) - coming if instead_of is not None else ()
        less = sum(self._work_of(pattern) for pattern in going if self._uses[pattern] == 1)
        bound = self._limits.detector_preparation_max
        # If the bound was lowered, a detector may exceed it and can still lose patterns.
        if more > less and self.work + more - less > bound:
            said = (
                "compiling the patterns of the detector's rules costs "
                f"{self.work + more - less} units; limit {bound}"
            )
            raise Refusal(Entry(_FULL, said))

    def add(self, condition: Condition) -> None:
        """Count the patterns of a rule."""
        for pattern in _patterns(condition):
            if not self._uses[pattern]:
                self.work += self._work_of(pattern)
            self._uses[pattern] += 1

    def remove(self, condition: Condition) -> None:
        """Undo one `add` of the same condition."""
        for pattern in _patterns(condition):
            self._uses[pattern] -= 1
            if not self._uses[pattern]:
                del self._uses[pattern]
                self.work -= self._work_of(pattern)

    def _work_of(self, pattern: str) -> int:
        return compile_pattern(pattern, self._limits).preparation


def _patterns(condition: Condition) -> frozenset[str]:
    return frozenset(pattern for _, pattern in requirements_of(condition).patterns)
