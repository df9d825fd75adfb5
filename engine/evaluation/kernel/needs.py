"""What the enabled rules of a detector need besides memories: patterns, look-ups, relations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from engine.evaluation.facts.lookups import Lookups
from engine.evaluation.facts.pattern_work import PatternWork
from engine.evaluation.facts.texts import NO_TEXTS, Arrays, Texts
from engine.evaluation.paths import Path
from engine.evaluation.requirements import Requirements
from engine.language.limits import Limits
from engine.patterns.compiled_pattern import compile_pattern

RELATIONS_NAMED_MAX: Final = 16
"""The most missing relations that the messages about an event name."""

NAME_CHARS_SHOWN: Final = 255
"""Messages shorten longer names of facts and relations."""

WARNING_BYTES_MAX: Final = 256 + 6 * NAME_CHARS_SHOWN
"""The most bytes of a warning about a relation or a text, as JSON."""


class TimedPart(Protocol):
    """A part of a timed rule that remembers something."""

    @property
    def remembered(self) -> Any:
        """The memory."""

    def changed(self, read: Any) -> str | None:
        """Return the test whether an event has changed what time will change; None if each event may have."""

    def advances(self, read: Any) -> str | None:
        """Return the test, before an event is written, whether it may bring forward what its slice awaits."""


class Waiting(Protocol):
    """The slices of one timed rule, which wait for their time."""

    path: Path | None
    soonest: int | None
    shared_soonest: int | None
    rest: list[int]
    made: int

    @property
    def shares(self) -> bool:
        """Whether there is something that slices share."""

    @property
    def own_parts(self) -> Sequence[TimedPart]:
        """What is remembered in the slices of all its keys."""

    @property
    def shared_parts(self) -> Sequence[TimedPart]:
        """What is remembered in slices that several keys share."""

    @property
    def shards(self) -> Any:
        """The entries by key, whose first member is the stamp of the time."""

    def touch(self, key: Any, stamp: int, fields: Any, sent: Any, *, is_changed: bool = False) -> None:
        """See what an event has made of the slice of a key."""

    def share(self, stamp: int, fields: Any, sent: Any) -> None:
        """See what an event has made of what slices share."""

    def meet(self, stamp: int, fields: Any, sent: Any) -> None:
        """See what an event has made of its slices, whatever their keys."""


class Timing(Protocol):
    """The timed rules of a detector."""

    not_waiting: tuple[int]
    """In place of the entry of a key that has none."""

    @property
    def queue(self) -> Any:
        """What waits for its time: it is `due` when the first is."""

    @property
    def watches(self) -> Mapping[int, Waiting]:
        """The rules by priority."""

    def pass_time(self, base: int, tick: int) -> None:
        """Have all fire that are due up to the time of a stamp, after the event with a number."""

    def rules_changed(self) -> None:
        """See that rules have changed."""

    def touch(self, outcomes: Any, entered: Any, stamp: int, fields: Any, sent: Any) -> None:
        """See what an event has made of slices, while rules are indexed."""


class Needs:
    """The needs of some rules, each counted."""

    def __init__(self, limits: Limits, stored: Mapping[str, Any]) -> None:
        """Take the bounds, and the relations that are stored, by name; others change these."""
        self.limits = limits
        self.stored = stored
        self.patterns = PatternWork(limits)
        self.lookups = Lookups(stored)
        self.relations: Counter[str] = Counter()
        """The relations, each with the number of rules that use it."""
        self._arrays: Counter[str] = Counter()
        self._found_arrays: Arrays | None = None
        self.timing: Timing | None = None
        """The timed rules, if there can be some."""
        self._bounds: Counter[tuple[str, int]] = Counter()
        self._texts: Texts | None = None
        self._unstored: list[str] | None = None

    @property
    def texts(self) -> Texts:
        """The facts whose texts patterns are matched against."""
        if self._texts is None:
            chars_max = self.limits.pattern_text_chars_max
            self._texts = Texts(self._bounds, chars_max) if self._bounds else NO_TEXTS
        return self._texts

    @property
    def arrays(self) -> Arrays:
        """The arrays whose elements rules ask about."""
        if self._found_arrays is None:
            self._found_arrays = Arrays(self._arrays)
        return self._found_arrays

    @property
    def unstored(self) -> list[str]:
        """The names of the relations in rules that are not stored, sorted."""
        if self._unstored is None:
            self._unstored = sorted(name for name in self.relations if name not in self.stored)
        return self._unstored

    @property
    def warning_bytes_worst(self) -> int:
        """The most bytes of warnings in the result of one event."""
        relations = min(len(self.relations), RELATIONS_NAMED_MAX + 1)
        return (relations + len(self.texts) + len(self._arrays)) * WARNING_BYTES_MAX

    def may_warn_now(self) -> bool:
        """Return whether there may be messages about an event."""
        return bool(self.unstored or self.texts or self._arrays)

    def need(self, parts: Requirements) -> None:
        """Add what a rule needs."""
        self.relations.update(parts.relations)
        for fact, text in parts.literals:
            self.lookups.add(fact, text)
        self._arrays.update(parts.arrays)
        for fact, pattern in parts.patterns:
            self.patterns.add(fact, pattern)
        for fact, pattern in parts.patterns | parts.text_tests:
            self._bounds[fact, compile_pattern(pattern, self.limits).text_bytes_max] += 1
        self._texts = self._unstored = self._found_arrays = None

    def need_no_more(self, parts: Requirements) -> None:
        """Undo `need`."""
        for fact, text in parts.literals:
            self.lookups.remove(fact, text)
        for relation in parts.relations:
            uncount(self.relations, relation)
        for array in parts.arrays:
            uncount(self._arrays, array)
        for fact, pattern in parts.patterns:
            self.patterns.remove(fact, pattern)
        for fact, pattern in parts.patterns | parts.text_tests:
            uncount(self._bounds, (fact, compile_pattern(pattern, self.limits).text_bytes_max))
        self._texts = self._unstored = self._found_arrays = None

    def compile_new(self) -> None:
        """Compile the texts that added rules search for, so that no event has to."""
        for changed in (self.patterns.changed, self.lookups.changed):
            while changed:
                changed.pop().compile_new()


def uncount(counts: Counter[Any], item: Any) -> None:
    """Count an item once less, and drop it at 0."""
    counts[item] -= 1
    if not counts[item]:
        del counts[item]
