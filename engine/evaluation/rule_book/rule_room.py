"""A bound on the size of a detector's rules, which are kept in memory, saved, copied and listed."""

from collections.abc import Iterable
from typing import Final

from engine.evaluation.rules import Rule
from engine.language.diagnostics import Entry, Refusal

_FULL: Final = 1400


class RuleRoom:
    """The size of all rules of a detector together, as JSON."""

    def __init__(self, rules: Iterable[Rule], bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = sum(rule.bytes_as_json() for rule in rules)

    def check(self, new: Rule, before: Rule | None = None) -> None:
        """Raise Refusal 1400 if there is no room for a new rule. It may replace another rule."""
        less = 0 if before is None else before.bytes_as_json()
        more = new.bytes_as_json()
        # If the bound was lowered, a detector may exceed it, and its rules can still become smaller.
        if more > less and self.bytes + more - less > self.bytes_max:
            said = (
                f"the detector's rules would take {self.bytes + more - less} bytes as JSON; "
                f"at most {self.bytes_max} are allowed"
            )
            raise Refusal(Entry(_FULL, said))

    def put(self, new: Rule | None, before: Rule | None) -> None:
        """Count a rule that is added, replaced or removed."""
        self.bytes += 0 if new is None else new.bytes_as_json()
        self.bytes -= 0 if before is None else before.bytes_as_json()
