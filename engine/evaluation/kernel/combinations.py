"""The rules that fire together: one tuple for each combination, however often it recurs."""

from collections.abc import Callable, Hashable, Sequence
from itertools import compress
from typing import Final, TypeVar

from engine.evaluation.rules import Fired, Rule

KeyT = TypeVar("KeyT", bound=Hashable)

KEPT_MAX: Final = 1_024
_RULES_MAX: Final = 64
"""Larger combinations are not kept. Together with KEPT_MAX, this limits all of them to about a megabyte."""

_AS_CHOICES: Final = bytes.maketrans(b"01", b"\x00\x01")


class Combinations(dict[KeyT, Fired]):
    """The tuple of rules for each combination, which `of` makes from its key.

    The same combinations often recur, so what depends on one is looked up by the identity of its tuple.
    """

    __slots__ = ("_of",)

    def __init__(self, of: Callable[[KeyT], Fired]) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, key: KeyT) -> Fired:
        fired = self._of(key)
        if len(fired) <= _RULES_MAX:
            if len(self) >= KEPT_MAX:
                self.clear()
            self[key] = fired
        return fired


def rules_of_bits(rules: Sequence[Rule], bits: int) -> Fired:
    """Return the rules that have their bits set in a number; the first rule has the lowest bit."""
    return tuple(compress(rules, f"{bits:b}"[::-1].encode().translate(_AS_CHOICES)))
