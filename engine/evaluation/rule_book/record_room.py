"""A bound on the memory of records without keys, which cannot be evicted."""

from collections import Counter
from typing import Final

from engine.evaluation.operators.table import operator_of
from engine.evaluation.requirements import requirements_of
from engine.language.condition import Condition
from engine.language.diagnostics import Entry, Refusal

SHARE: Final = 2
"""These records may take the bound on a detector's memory divided by this, in addition to what keys take."""

_FULL: Final = 1400


class RecordRoom:
    """The most memory that the records without keys of a detector's enabled rules may take."""

    def __init__(self, state_bytes_max: int) -> None:
        self.bytes_max = state_bytes_max // SHARE
        self.bytes = 0
        self._uses = Counter[tuple[Condition, int]]()
        """By node and birth, the number of rules that read its record."""

    def check(self, new: Condition, birth: int, before: tuple[Condition, int] | None = None) -> None:
        """Raise Refusal 1400 if there is no room for the records of a rule.

        It may replace an enabled rule, of which the condition and the birth are given.
        """
        coming = _records(new, birth)
        going = {} if before is None else _records(*before)
        more = sum(size for record, size in coming.items() if not self._uses[record])
        less = sum(size for record, size in going.items() if self._uses[record] == 1 and record not in coming)
        # If the bound was lowered, a detector may exceed it and can still lose records.
        if more > less and self.bytes + more - less > self.bytes_max:
            said = (
                "what the detector's rules count without `per` may grow to "
                f"{self.bytes + more - less} bytes; limit {self.bytes_max}"
            )
            raise Refusal(Entry(_FULL, said))

    def add(self, condition: Condition, birth: int) -> None:
        """Count the records of a rule."""
        for record, size in _records(condition, birth).items():
            self._uses[record] += 1
            if self._uses[record] == 1:
                self.bytes += size

    def remove(self, condition: Condition, birth: int) -> None:
        """Undo one `add` of the same rule."""
        for record, size in _records(condition, birth).items():
            self._uses[record] -= 1
            if not self._uses[record]:
                del self._uses[record]
                self.bytes -= size


def _records(condition: Condition, birth: int) -> dict[tuple[Condition, int], int]:
    """Return the most bytes that each record of a rule may take, by node and birth."""
    found = {}
    for node, path in requirements_of(condition, birth).memories:
        operator = operator_of(node)
        if operator is not None and not path and (memory := operator.memory(node)).is_record:
            found[node, birth] = memory.bytes_max(operator.keep(node))
    return found
