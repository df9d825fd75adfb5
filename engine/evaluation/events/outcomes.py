"""The outcomes of events: rules that fired, refusals, and messages, such as those about late events."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from engine.evaluation.facts.look_up import fact_shown
from engine.evaluation.facts.values import Event
from engine.evaluation.kernel.needs import NAME_CHARS_SHOWN, RELATIONS_NAMED_MAX
from engine.evaluation.kernel.rule_set import RuleSet
from engine.evaluation.rules import Fired
from engine.language.condition import STRINGS
from engine.language.diagnostics import Entry, Refusal, cut
from engine.language.limits import Limits

_code: Final = attrgetter("code")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one event: the rules that fired, in order of priority, and the messages about it."""

    fired: Fired
    messages: list[Entry]

    @property
    def actions(self) -> list[dict[str, Any]]:
        """The actions of the rules that fired."""
        return [rule.action() for rule in self.fired]


class BatchRefused(Refusal):
    """The event at `index` of `evaluate_many` was refused. `results` are those of earlier events."""

    def __init__(self, *entries: Entry, index: int, results: tuple[Fired, ...]) -> None:
        super().__init__(*entries)
        self.index = index
        self.results = results

    def __str__(self) -> str:
        return f"at index {self.index}: {super().__str__()}"

    def __reduce__(self) -> tuple[Callable[..., Refusal], tuple[Entry, ...]]:
        """Pickle the place and the results, too."""
        return partial(type(self), index=self.index, results=self.results), self.entries


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of a batch, by the index of the event.

    An object for each event would take as long as evaluating a few rules.
    """

    fired: list[Fired] = field(default_factory=list)
    """The rules that fired at each event, in order of priority; none for a refused event."""
    messages: dict[int, list[Entry]] = field(default_factory=dict)
    """The messages about each event that has any."""
    refused: dict[int, Refusal] = field(default_factory=dict)

    def append(self, entry: Entry) -> None:
        """Add a message about the next event."""
        self.messages.setdefault(len(self.fired), []).append(entry)

    def warn(self, place: int, warnings: list[Entry]) -> None:
        """Add warnings about an event, unless it was refused. Messages are in order of code."""
        if place not in self.refused:
            messages = [*warnings, *self.messages.get(place, ())]
            self.messages[place] = sorted(messages, key=_code)

    def refuse(self, refusal: Refusal) -> None:
        """Record the refusal of the next event."""
        self.refused[len(self.fired)] = refusal.kept()
        self.fired.append(())


# -- late events, and those ahead of the clock --------------------------------------------------------------

_DECADES_US: Final = 1_000_000_000_000_000
"""An event 30 years late or ahead probably has its time in another unit."""
_PLAUSIBLE_FROM_MS: Final = 315_532_800_000
"""The beginning of 1980. A time in seconds is before it until the year 11968."""
_PLAUSIBLE_TO_MS: Final = 4_133_980_800_000
"""The end of 2100. A time in microseconds is after it from February 1970 on."""

_LATE: Final = re.compile(rb"the event came ([0-9]{1,16}(?:[.][0-9]{1,3})?) ms late")
_GAP: Final = b"\0"
"""The placeholder of a lateness. Encoded messages have no such byte."""
LATE_US_MAX: Final = 2**32 - 1
"""The maximum lateness that is taken out of messages: more than an hour."""


def late(late_us: int) -> Entry:
    """Return the message about a late event."""
    return Entry(2001, f"the event came {_ms(late_us)} ms late and was evaluated at the detector's time")


def not_milliseconds(timestamp_ms: float) -> list[Entry]:
    """Return the message about the time of a detector's first event, if the time is implausible."""
    if _PLAUSIBLE_FROM_MS <= timestamp_ms < _PLAUSIBLE_TO_MS:
        return []
    when = "before 1980" if timestamp_ms < _PLAUSIBLE_FROM_MS else "after 2100"
    said = f"the detector's first event is {when}: timestamp_ms counts milliseconds since 1970; it set the "
    return [Entry(2007, f"{said}detector's clock, so send the right times to a new detector")]


def too_late(late_us: int, limits: Limits) -> Refusal:
    """Return the Refusal for an event that is too late."""
    said = f"the event is {_ms(late_us)} ms late, at most {limits.late_ms_max} ms are accepted; "
    why = "the first event sets a detector's clock, so send recorded events to a new detector"
    hint = "; timestamp_ms counts milliseconds, not seconds" if late_us > _DECADES_US else ""
    return Refusal(Entry(1402, said + why + hint))


def too_far_ahead(ahead_us: int, limits: Limits) -> Refusal:
    """Return the Refusal for an event or a tick that is too far ahead of the server's clock."""
    said = f"the time is {_ms(ahead_us)} ms ahead of the server's; "
    hint = "; timestamp_ms counts milliseconds since 1970" if ahead_us > _DECADES_US else ""
    return Refusal(Entry(1402, f"{said}at most {limits.ahead_ms_max} ms are accepted{hint}"))


def without_lateness(messages: bytes) -> tuple[bytes, int]:
    """Return encoded messages with a placeholder for the lateness, and the lateness, 0 if there is none.

    Messages that differ only in the lateness thus become equal.
    """
    found = _LATE.search(messages)
    if found is not None:
        late_us = round(float(found[1]) * 1_000)
        common = messages[: found.start(1)] + _GAP + messages[found.end(1) :]
        if late_us <= LATE_US_MAX and with_lateness(common, late_us) == messages:
            return common, late_us
    return messages, 0


def with_lateness(common: bytes, late_us: int) -> bytes:
    """Undo `without_lateness`."""
    return common.replace(_GAP, _ms(late_us).encode())


def _ms(duration_us: int) -> str:
    """Return microseconds as milliseconds, without trailing zeros."""
    return f"{duration_us / 1_000:.3f}".rstrip("0").rstrip(".")


# -- missing relations, and texts that are too long for some patterns ---------------------------------------

_NOTHING: Final[Mapping[str, Any]] = {}


def warnings_on(
    fields: Mapping[str, Any], sent: Mapping[str, Any], rule_set: RuleSet, limits: Limits
) -> Iterator[Entry]:
    """Yield the messages 2003 and 2004 about an event."""
    if rule_set.unstored:
        yield from _missing_relations(sent, rule_set)
    texts, arrays = rule_set.texts, rule_set.arrays
    if texts and (rule_set.patterns.bounded or not texts.are_small(fields, sent)):
        yield from _long_texts(fields, sent, rule_set, limits)
    if arrays and not arrays.are_small(fields, sent):
        yield from _long_arrays(fields, sent, rule_set)


def warnings_on_many(
    events: Sequence[Event], rule_set: RuleSet, limits: Limits
) -> Iterator[tuple[int, list[Entry]]]:
    """Yield the index and the messages of each event that has any.

    The events were evaluated just before.
    """
    texts, arrays, unstored = rule_set.texts, rule_set.arrays, rule_set.unstored
    reached = rule_set.patterns.reached()
    missing: list[Entry] = []
    read: Mapping[str, Any] | None = None
    for place, (fields, _, sent) in enumerate(events):
        context = sent or _NOTHING
        if unstored and context is not read:
            # The events of a batch have the same context.
            missing, read = [*_missing_relations(context, rule_set)], context
        entries = missing
        if texts and (reached or not texts.are_small(fields, context)):
            entries = [*missing, *_long_texts(fields, context, rule_set, limits)]
        if arrays and not arrays.are_small(fields, context):
            entries = [*entries, *_long_arrays(fields, context, rule_set)]
        if entries:
            yield place, entries


def _long_texts(
    fields: Mapping[str, Any], sent: Mapping[str, Any], rule_set: RuleSet, limits: Limits
) -> Iterator[Entry]:
    chars_max = limits.pattern_text_chars_max
    cut = rule_set.patterns.begin(fields, sent)
    for said, bytes_max, text in rule_set.texts.largest_in(fields, sent):
        if len(text) > chars_max:
            tried = f"patterns are tried on at most {chars_max}"
        elif 4 * len(text) > bytes_max < len(text.encode("utf-8", "surrogatepass")):
            # A character takes up to four bytes, so most texts need not be encoded to know that they are
            # short.
            tried = f"the largest of its patterns is tried on at most {bytes_max} bytes"
        elif rule_set.patterns.is_untried(said):
            tried = "its patterns are not tried: together they would take too long"
        elif said in cut:
            tried = "the slow ones among its patterns are not tried: together they would take too long"
        else:
            continue
        yield Entry(2004, f"`{_shown(said)}` has {len(text)} characters; {tried}")


def _long_arrays(fields: Mapping[str, Any], sent: Mapping[str, Any], rule_set: RuleSet) -> Iterator[Entry]:
    for fact, most, array in rule_set.arrays.largest_in(fields, sent):
        if len(array) <= most:
            continue
        if fact == STRINGS:
            said = f"the event has {len(array)} strings; `anywhere`"
        else:
            said = f"`{_shown(fact)}` has {len(array)} elements; `some`"
        yield Entry(2004, f"{said} is false of more than {most}")


def _missing_relations(sent: Mapping[str, Any], rule_set: RuleSet) -> Iterator[Entry]:
    unstored = rule_set.unstored
    missing = len(unstored) - sum(name in rule_set.relations and name not in rule_set.stored for name in sent)
    named = islice((name for name in unstored if name not in sent), RELATIONS_NAMED_MAX)
    for name in named:
        yield Entry(2003, f"the relation `{_shown(name)}` is neither stored nor sent, and holds nothing")
    if missing > RELATIONS_NAMED_MAX:
        more = missing - RELATIONS_NAMED_MAX
        yield Entry(2003, f"{more} more relations are neither stored nor sent, and hold nothing")


def _shown(name: str) -> str:
    return cut(fact_shown(name), NAME_CHARS_SHOWN)
