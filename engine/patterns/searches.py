"""The patterns of one fact, and what they come to on the text that it has at an event."""

from typing import Final

from engine.language.limits import Limits
from engine.patterns.searching import CompiledPattern
from engine.patterns.sets import WEIGHT_MAX, PatternSets

SET_SEARCHES: Final = 50
"""What a pass over a text for a full set of literals counts, because of texts that are made for it."""


class Searches:
    """Tries each pattern of a fact at most once on a text, and not at all where it cannot be found there.

    Texts are known by identity: what is asked for again and again at one event is one text.
    """

    def __init__(self, limits: Limits) -> None:
        self.count = 0
        """How many patterns there are."""
        self.untried = False
        """Whether no pattern is tried at the event at hand."""
        self.exploding_untried = False
        """Whether those that explode are not."""
        self._limits = limits
        self._counts: dict[str, int] = {}
        self._sets: PatternSets | None = None
        """Made for the first text that is long for so many patterns."""
        self._weight: int | None = None
        self._text: str | None = None
        self._verdicts: dict[str, bool] = {}
        self._possible: frozenset[str] | None = None
        """Which patterns may be found in the text; None where that was not asked."""
        self._bytes = 0
        """What `bytes_of` gave for the text."""

    def add(self, pattern: str) -> None:
        """Add a pattern; one that is there is counted."""
        self._counts[pattern] = self._counts.get(pattern, 0) + 1
        if self._counts[pattern] == 1:
            self.count += 1
            self._change()
            if self._sets is not None:
                self._sets.add(pattern)

    def remove(self, pattern: str) -> None:
        """Undo one `add`, if there was one."""
        count = self._counts.get(pattern, 0)
        if count > 1:
            self._counts[pattern] = count - 1
        elif count:
            del self._counts[pattern]
            self.count -= 1
            self._change()
            if self._sets is not None:
                self._sets.remove(pattern)

    def _change(self) -> None:
        self._weight = None
        self._turn_to(None)

    def bytes_of(self, text: str) -> int:
        """Give how many bytes of the text are gone through by all patterns that may be found in it.

        From then on patterns that cannot be found in it are not tried on it.
        """
        if text is self._text and self._possible is not None:
            return self._bytes
        if len(text) > self._limits.pattern_text_chars_max:
            return 0
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            return 0
        if self._sets is None:
            self._sets = PatternSets(self._limits)
            for pattern in self._counts:
                self._sets.add(pattern)
        if self._weight is None:
            self._weight = self._sets.weight
        passes = SET_SEARCHES * self._weight * size // WEIGHT_MAX
        if passes > self._limits.pattern_event_bytes_max:
            # Not even that is asked.
            return passes
        found = self._candidates(text)
        self._turn_to(text)
        self._verdicts.update((pattern, True) for pattern, certain in found if certain)
        self._possible = frozenset(pattern for pattern, _ in found)
        self._bytes = passes + size * (len(self._possible) - len(self._verdicts))
        return self._bytes

    def _candidates(self, text: str) -> list[tuple[str, bool]]:
        assert self._sets is not None, "they are made before anything is asked of them"
        return self._sets.candidates(text)

    def found(self, pattern: str, compiled: CompiledPattern, text: str) -> bool:
        """Tell whether a pattern is found in the text of the fact at the event at hand."""
        if self.untried or (self.exploding_untried and compiled.explodes):
            return False
        if text is not self._text:
            self._turn_to(text)
        verdict = self._verdicts.get(pattern)
        if verdict is None:
            possible = self._possible is None or pattern in self._possible or pattern not in self._counts
            verdict = self._verdicts[pattern] = possible and compiled.found_in(text)
        return verdict

    def _turn_to(self, text: str | None) -> None:
        self._text = text
        self._verdicts.clear()
        self._possible = None
