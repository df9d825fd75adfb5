"""The patterns of one fact, and which of them match its text at an event."""

from collections.abc import Callable, Container, Sequence
from math import inf
from typing import Any, Final

from engine.patterns.compiled_pattern import CompiledPattern, compile_pattern
from engine.patterns.limits import PatternLimits
from engine.patterns.sets import WEIGHT_MAX, PatternSets

SET_SEARCHES: Final = 50
"""One pass over a text with a full set of literals counts as this many searches, its cost for hostile
texts."""

TRIED_SINGLY_MAX: Final = 32
"""This many patterns are tried on a text one by one; then all are searched for together. This limits what an
event compiles, because a single literal is compiled when it is first tried by itself."""

TRIED_EACH_MAX: Final = 3
"""Searching for all of so few patterns together takes longer than trying each."""

WALKS_MAX: Final = 32
"""Up to this many rules try each element of an array. Then all elements are searched for all patterns."""

FOUND_MAX: Final = 1_000_000
"""With more pairs of an element and a pattern that may match it, each rule tries each element."""

_CHARACTER_BYTES_MAX: Final = 4

KEPT_CHARS_MAX: Final = 1_000
"""Results for longer texts are not cached, because these rarely recur."""
KEPT_TEXTS_MAX: Final = 250
"""The number of texts of a fact whose results are cached, some hundred bytes each."""


class FactPatterns:
    """Tries each pattern at most once on a text, or not at all if a search for all patterns excludes it.

    Texts are recognized by identity, because all rules see the same object during an event. Results for short
    texts are also cached for later events.
    """

    def __init__(self, limits: PatternLimits) -> None:
        self.untried = False
        """Whether all patterns are skipped at the current event."""
        self.exploding_untried = False
        """Whether exploding patterns are skipped at the current event."""
        self.bytes_a_char = 0
        """An upper bound of `bytes_of` for each character of a text."""
        self.exploding = 0
        """The number of exploding patterns."""
        self._limits = limits
        self._counts: dict[str, int] = {}
        self._compiled: dict[str, CompiledPattern] = {}
        self._exploding: dict[str, CompiledPattern] = {}
        self._work_per_byte = 0
        """The sum of `work_per_byte` over the exploding patterns."""
        self._sets = PatternSets()
        self._text: str | None = None
        self._size: int
        """The size of the text in bytes, set by a search for all patterns."""
        self._verdicts: dict[str, bool] = {}
        self._possible: dict[str, bool] | None = None
        """The patterns that may match the text, and whether each certainly does, after a search for all."""
        self._kept: dict[str, tuple[dict[str, bool], dict[str, bool], int]] = {}
        """These, the verdicts and the size, for short texts that were searched before."""
        self._array: list[Any] | None = None
        """The current array, if the fact is one of elements."""
        self._walks: float = 0
        """The number of requests for its elements so far."""
        self._elements: dict[str, list[Any]] | None = None
        """Its elements by the patterns that may match them, after a search for all patterns."""

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, pattern: str) -> None:
        """Add a pattern, or count another use of it."""
        self._counts[pattern] = self._counts.get(pattern, 0) + 1
        if self._counts[pattern] == 1:
            compiled = self._compiled[pattern] = compile_pattern(pattern, self._limits)
            self._sets.add(pattern, compiled.asked_for, compiled.line, is_whole=compiled.is_whole)
            if compiled.explodes:
                self._exploding[pattern] = compiled
                self._work_per_byte += compiled.work_per_byte
            self._switch_to(None)

    def remove(self, pattern: str) -> None:
        """Undo one `add` of the same pattern."""
        self._counts[pattern] -= 1
        if not self._counts[pattern]:
            del self._counts[pattern], self._compiled[pattern]
            if pattern in self._exploding:
                self._work_per_byte -= self._exploding.pop(pattern).work_per_byte
            self._sets.remove(pattern)
            self._switch_to(None)

    def compiled(self, pattern: str) -> CompiledPattern:
        """Return the compiled form of any pattern, even one that was not added."""
        return self._compiled.get(pattern) or compile_pattern(pattern, self._limits)

    def compile_new(self) -> None:
        """Compile added patterns, so that no event has to."""
        self._sets.compile_new()

    # -- the cost of the patterns on a text -----------------------------------------------------------------

    def bytes_of(self, text: str) -> int:
        """Return the bytes of the text, times the patterns that are tried on it."""
        if len(text) > self._limits.pattern_text_chars_max:
            return 0
        passes = SET_SEARCHES * self._sets.weight * len(_encoded(text) or b"") // WEIGHT_MAX
        if passes > self._limits.pattern_event_bytes_max:
            # The search for all patterns alone exceeds the bound.
            return passes
        return passes + sum(self._size for certain in self._search(text).values() if not certain)

    def work_at_most(self, text: str) -> int:
        """Return an upper bound of `work` without a search."""
        return self._work_per_byte * len(text) * (1 if text.isascii() else _CHARACTER_BYTES_MAX)

    def work(self, text: str) -> int:
        """Return the work of the exploding patterns that may match the text and accept its length."""
        possible = self._search(text)
        return sum(self._exploding[each].work(text, self._size) for each in self._exploding.keys() & possible)

    # -- matching -------------------------------------------------------------------------------------------

    def found(self, pattern: str, compiled: CompiledPattern, text: str) -> bool:
        """Return whether a pattern matches the text of the fact at the current event."""
        if self.untried or (self.exploding_untried and compiled.explodes):
            return False
        if text is not self._text:
            self._switch_to(text)
        verdict = self._verdicts.get(pattern)
        if verdict is None:
            if self._possible is None and len(self._verdicts) >= TRIED_SINGLY_MAX:
                self._search(text)
            if self._possible is None or pattern not in self._counts:
                verdict = compiled.found_in(text)
            else:
                certain = self._possible.get(pattern)
                verdict = certain is not None and (certain or compiled.found_in(text))
            self._verdicts[pattern] = verdict
        return verdict

    def found_among(self, wanted: Container[str], text: str) -> list[str]:
        """Return those of the wanted patterns that match the text of the fact at the current event."""
        if self.untried:
            return []
        if len(self._counts) <= TRIED_EACH_MAX:
            compiled = self._compiled
            return [each for each in compiled if each in wanted and self.found(each, compiled[each], text)]
        possible = self._search(text)
        return [each for each in possible if each in wanted and self.found(each, self._compiled[each], text)]

    def elements(
        self,
        pattern: str,
        look: Callable[[Any], Any],
        walked: "list[FactPatterns]",
        array: list[Any],
    ) -> Sequence[Any]:
        """Return the elements of an array that a pattern may match.

        `look` returns the value of the fact in an element. This object is added to `walked` when it begins to
        keep an array.
        """
        if self.untried:
            return ()
        if array is not self._array:
            if self._array is None:
                walked.append(self)
            self._array, self._walks, self._elements = array, 0, None
        self._walks += 1
        if self._walks <= WALKS_MAX or pattern not in self._counts:
            return array
        if self._elements is None:
            self._elements = self._searched(look, array)
            if self._elements is None:
                self._walks = -inf
                return array
        return self._elements.get(pattern, ())

    def forget_elements(self) -> None:
        """Forget the array, which its owner may change from now on."""
        self._array = self._elements = None

    def _searched(self, look: Callable[[Any], Any], array: list[Any]) -> dict[str, list[Any]] | None:
        """Return the elements of an array by the patterns that may match them; None if they are too many."""
        found: dict[str, list[Any]] = {}
        left = FOUND_MAX
        for element in array:
            if type(text := look(element)) is str:
                possible = self._search(text)
                left -= len(possible)
                if left < 0:
                    return None
                for pattern in possible:
                    found.setdefault(pattern, []).append(element)
        return found

    def _search(self, text: str) -> dict[str, bool]:
        """Return the patterns that may match the text, and whether each certainly does."""
        if text is not self._text:
            self._switch_to(text)
        if self._possible is None:
            encoded = _encoded(text) if len(text) <= self._limits.pattern_text_chars_max else None
            if encoded is None or len(encoded) > self._limits.pattern_work_max:
                self._possible = {}
            else:
                self._possible, self._size = self._sets.candidates(encoded), len(encoded)
                if len(text) <= KEPT_CHARS_MAX:
                    if len(self._kept) >= KEPT_TEXTS_MAX:
                        self._kept.clear()
                    self._kept[text] = self._possible, self._verdicts, self._size
        return self._possible

    def _switch_to(self, text: str | None) -> None:
        """Switch to another text. None means that the patterns have changed."""
        self._text = text
        if text is None:
            self._kept.clear()
            self.forget_elements()
            self.exploding = len(self._exploding)
            self.bytes_a_char = len(self._counts) * _CHARACTER_BYTES_MAX
        known = None if text is None else self._kept.get(text)
        if known is None:
            self._possible, self._verdicts = None, {}
        else:
            self._possible, self._verdicts, self._size = known


def _encoded(text: str) -> bytes | None:
    """Return a text as UTF-8; None if it has an unpaired surrogate, so that nothing matches."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None
