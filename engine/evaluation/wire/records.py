"""Plain records, as log shippers send them: found in a body, converted to events, evaluated, counted."""

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from math import inf
from typing import Any, Final, TypeVar

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.events.outcomes import Outcomes
from engine.evaluation.facts.look_up import split_name
from engine.evaluation.facts.values import Event
from engine.evaluation.stamps import LATEST_US
from engine.evaluation.wire.bodies import TWO_OBJECTS, check_count, decode, decode_lines, without_collector
from engine.evaluation.wire.decoding import PORTION_BYTES, EventBody, of_part
from engine.evaluation.wire.events import (
    Answer,
    Done,
    Refused,
    encode_entries,
    parts_in_turn,
    refused_result,
    results_of,
    room_for,
    without_room,
)
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECONDS_BELOW: Final = 10**11
_MILLISECONDS_BELOW: Final = 10**14
_MICROSECONDS_BELOW: Final = 10**17
"""Times below these numbers are in seconds, milliseconds and microseconds; others in nanoseconds."""
_NUMBER: Final = re.compile(r"\s*-?[0-9]{9,30}(\.[0-9]{0,30})?\s*")
"""Texts with fewer digits may be dates, such as 20240304."""


def time_in(name: str) -> Callable[[Mapping[str, Any]], float]:
    """Return a function that reads the time of a record, in milliseconds, from the field with this name.

    Times are whole microseconds. The function raises Refusal 1001 if the record has no such field, or no time
    in it.
    """
    look = split_name(name).look if "." in name else None

    def time_ms(record: Mapping[str, Any]) -> float:
        given = record.get(name) if look is None else look(record)
        found = _time_us(given)
        if found is None or abs(found) > LATEST_US:
            what = "is no time in ISO 8601 and no number of s, ms, µs or ns since 1970"
            raise Refusal(Entry(1001, f"`{name}` {'is missing' if given is None else what}"))
        return round(found) / 1_000

    return time_ms


def _time_us(given: Any) -> float | None:
    """Return a time in microseconds; None if the value is not a time."""
    if isinstance(given, str):
        if _NUMBER.fullmatch(given):
            return _time_us(float(given) if "." in given else int(given))
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            return None
        return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    if not isinstance(given, int | float) or isinstance(given, bool):
        return None
    size = abs(given)
    if size < _SECONDS_BELOW:
        return given * 1_000_000
    if size < _MILLISECONDS_BELOW:
        return given * 1_000
    if size < _MICROSECONDS_BELOW:
        return given
    # Nanoseconds. Dividing a number beyond a double's range would fail.
    return given / 1_000 if size <= LATEST_US * 1_000 else None


# -- records in a body --------------------------------------------------------------------------------------

T = TypeVar("T")

_GZIP: Final = b"\x1f\x8b"
_TRAILING: Final = "trailing characters"
_APART: Final = (
    "each record stands on a line of its own (`curl -d` joins lines, `curl --data-binary` does not)"
)
_LINE: Final = re.compile(rb"[^ \t\r\n][^\n]*")
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Ingest(msgspec.Struct, frozen=True, array_like=True):
    """A body of records, and options."""

    body: bytes
    """A JSON object, an array of objects, or one object per line."""
    time: str | None = None
    """The field with the time of a record; by default, the time of arrival is used."""
    are_events: bool = False
    """Whether the objects are not records but events, with `fields` and `timestamp_ms`. If all events are
    refused, they are counted, and the body is not refused."""
    with_results: bool = False
    """Whether the answer has the actions of each record."""


def events_of(
    given: Ingest, now_us: int, limits: Limits, between: Callable[[], None] = lambda: None
) -> list[Event | Refusal]:
    """Return the event of each record in a body, in order, or the Refusal of the record.

    `now_us` is the time of arrival. `between` is called from time to time. Raises Refusal 1400 if there are
    too many records, and 1000 if the body has too many values or is gzip.
    """
    body = given.body.removeprefix(BOM_UTF8)
    if body.startswith(_GZIP):
        raise Refusal(Entry(1000, "the body is gzip, but its `Content-Encoding` does not say so"))
    with without_collector(body):
        check_count(body, limits.body_values_max)
        texts = [*islice(_texts(body), limits.batch_events_max + 1)]
        if len(texts) > limits.batch_events_max:
            raise Refusal(Entry(1400, f"the body has more than {limits.batch_events_max} records"))
        events: list[Event | Refusal] = []
        step = max(1, len(texts) * PORTION_BYTES // max(1, len(body)))
        for first in range(0, len(texts), step):
            portion = texts[first : first + step]
            events += (
                _sent(portion, limits) if given.are_events else _made(portion, given.time, now_us, limits)
            )
            between()
        return events


def _texts(body: bytes) -> Iterator[bytes]:
    """Yield the texts of the records. A text that is JSON has no line feed."""
    lines = (found[0] for found in _LINE.finditer(body))
    first = next(lines, b"")
    if first[:1] == b"[":
        try:
            # In valid JSON, a line feed is a blank.
            yield from (bytes(text).replace(b"\n", b" ") for text in _ELEMENTS.decode(body))
        except (ValueError, RecursionError):
            pass
        else:
            return
    elif first and not _is_json(first) and _is_json(body):
        # One object over several lines.
        yield body.replace(b"\n", b" ")
        return
    if first:
        yield first
    yield from lines


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return False
    return True


def _made(texts: Sequence[bytes], time: str | None, now_us: int, limits: Limits) -> Iterator[Event | Refusal]:
    """Yield events with some texts as fields."""
    now_ms = now_us / 1_000
    time_ms = (lambda _: now_ms) if time is None else time_in(time)
    for record in _decoded(texts, dict[str, Any], limits):
        if isinstance(record, Refusal):
            yield record
            continue
        try:
            yield record, time_ms(record), {}
        except Refusal as refusal:
            yield refusal.kept()


def _sent(texts: Sequence[bytes], limits: Limits) -> Iterator[Event | Refusal]:
    """Yield the events that some texts represent."""
    for event in _decoded(texts, EventBody, limits):
        yield event if isinstance(event, Refusal) else (event.fields, event.timestamp_ms, {})


def _decoded(texts: Sequence[bytes], type_: type[T], limits: Limits) -> Sequence[T | Refusal]:
    together = decode_lines(b"\n".join(texts), type_, len(texts), limits)
    return together or [_alone(text, type_, limits) for text in texts]


def _alone(text: bytes, type_: type[T], limits: Limits) -> T | Refusal:
    try:
        return decode(text, type_, limits)
    except Refusal as refusal:
        said = of_part("record", refusal)
        if _TRAILING not in said.entries[0].message or not TWO_OBJECTS.search(text):
            return said
        return Refusal(Entry(1000, f"{said.entries[0].message}; {_APART}"))


# -- evaluation ---------------------------------------------------------------------------------------------

ERRORS_MAX: Final = 20
"""The maximum number of reported refusals."""

KINDS_MAX: Final = 20
"""The maximum number of reported kinds of messages."""

_NUMBER_OR_NAME: Final = re.compile(r"[0-9]+|`[^`]*`")

_UNIT: Final = re.compile("[;:] timestamp_ms counts milliseconds[^;]*")
"""Removed from messages: it concerns an event's member, whereas the unit of a record's time follows from its
size."""


def ingest(
    detector: Detector, given: Ingest, now_us: int, between: Callable[[], None] = lambda: None
) -> tuple[Answer, tuple[int, ...]]:
    """Evaluate the records of a body in the order of their times, and count the refused ones.

    Returns the answer, and the places of the refused records. If all are refused, the answer is the first
    refusal, with others of its kind, unless they were sent as events. `between` is called from time to time.
    Raises Refusal like `events_of`.
    """
    with without_collector(given.body):
        events = events_of(given, now_us, detector.limits, between)
        outcome = _Outcome(with_results=given.with_results)
        outcome.refused = {place: event for place, event in enumerate(events) if isinstance(event, Refusal)}
        places = in_order(events)
        outcome.evaluate(detector, [events[place] for place in places], places, between)
        count = len(events)
        events.clear()
    refused = dict(sorted(outcome.refused.items()))
    is_whole = bool(refused) and len(refused) == count and not given.are_events
    for refusal in [*refused.values()][is_whole:]:
        # If the answer is a refusal, the first is counted by whoever sends it.
        detector.refused[refusal.entries[0].code] += 1
    errors = [
        (place, entry) for place, refusal in islice(refused.items(), ERRORS_MAX) for entry in refusal.entries
    ]
    if is_whole:
        kind = errors[0][1].code // 10
        same = [
            Entry(entry.code, f"record {place}: {entry.message.removeprefix('record: ')}")
            for place, entry in errors[:ERRORS_MAX]
            if entry.code // 10 == kind
        ]
        return Refused(tuple(same)), ()
    said: dict[str, Any] = {
        "accepted": count - len(refused),
        "refused": len(refused),
        "fired": outcome.fired,
        "errors": [{"index": place, **entry._asdict()} for place, entry in errors[:ERRORS_MAX]],
    }
    if given.with_results:
        said["results"] = [
            msgspec.Raw(refused_result(refused[place]) if place in refused else outcome.results[place])
            for place in range(count)
        ]
    return Done(msgspec.json.encode(said), encode_entries(outcome.said())), tuple(refused)


def in_order(events: Sequence[Event | Refusal]) -> list[int]:
    """Return the places of events by time; events at the same time keep their order."""
    times = [(event[1], place) for place, event in enumerate(events) if not isinstance(event, Refusal)]
    times.sort()
    return [place for _, place in times]


class _Outcome:
    """The outcomes of records, by place in the body."""

    def __init__(self, *, with_results: bool) -> None:
        self.fired = 0
        """The number of actions."""
        self.refused: dict[int, Refusal] = {}
        self.results: dict[int, bytes] = {}
        self._messages: dict[tuple[int, str], list[tuple[int, str]]] = {}
        """The messages of each kind with the places of their records, unless they are in the results."""
        self._with_results = with_results
        self._results_bytes = 0

    def evaluate(
        self,
        detector: Detector,
        events: Sequence[Any],
        places: Sequence[int],
        between: Callable[[], None],
    ) -> None:
        """Evaluate the events at these places. Refuse those for which the answer has no room."""
        at = 0

        def room() -> float:
            return room_for(detector, self._results_bytes) if self._with_results else inf

        try:
            for part in parts_in_turn(len(events), room, between):
                self._note(detector.submit_clean(events[part]), places[part])
                at = part.stop
        finally:
            detector.forget_lookups()
        self.refused.update(dict.fromkeys(places[at:], without_room(detector.limits.answer_bytes_max)))

    def said(self) -> list[Entry]:
        """Return for each kind of message the one about the first record, with the number of records."""
        entries = []
        for (code, _), messages in sorted(self._messages.items())[:KINDS_MAX]:
            place, first = min(messages)
            count = f" ({len(messages)} records)" if len(messages) > 1 else ""
            entries.append(Entry(code, f"record {place}: {_UNIT.sub('', first)}{count}"))
        return entries

    def _note(self, outcomes: Outcomes, places: Sequence[int]) -> None:
        self.fired += sum(map(len, outcomes.fired))
        for number, refusal in outcomes.refused.items():
            entries = [Entry(entry.code, _UNIT.sub("", entry.message)) for entry in refusal.entries]
            self.refused[places[number]] = Refusal(*entries)
        if self._with_results:
            results = results_of(outcomes)
            self._results_bytes += sum(map(len, results)) + len(results)
            self.results.update(zip(places, results, strict=True))
        else:
            for number, messages in outcomes.messages.items():
                for code, text in messages:
                    self._messages.setdefault((code, _kind(text)), []).append((places[number], text))


def _kind(message: str) -> str:
    """Return a message without numbers, which differ from record to record, but with its names."""
    return _NUMBER_OR_NAME.sub(lambda found: found[0] if found[0][0] == "`" else "", message)
