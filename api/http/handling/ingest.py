"""Plain records as log shippers send them: found in a body, made events of, and counted once evaluated."""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate, islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from api.schema.messages.evaluations import RefusedRecord
from engine.evaluation.events.intake import TIMESTAMP_MS_MAX
from engine.evaluation.facts.look_up import split_name, value_of
from engine.evaluation.wire.bodies import check_count, decode, without_collector
from engine.evaluation.wire.events import Answer, Done, Refused
from engine.evaluation.wire.results import refused_result
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits
from engine.runtime.contract.requests.operations import Operation, evaluate_batch, evaluate_lines

ERRORS_MAX: Final = 20
"""How many refusals are told."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_TIME_US_MAX: Final = int(TIMESTAMP_MS_MAX) * 1000
_UNITS: Final = ((10**11, 1_000_000.0), (10**14, 1_000.0), (10**17, 1.0))
"""Below each number, a time is in seconds, milliseconds and microseconds; from there on in nanoseconds."""
_NANOSECOND_US: Final = 0.001

_UNREADABLE: Final = frozenset({1000, 1001})
"""Codes with which one event can cause a batch to be refused."""
_NO_ROOM: Final = b'"errors":[{"code":1400,'
"""In the results of events that were not evaluated because the answer was full: the last ones."""

_LINE: Final = re.compile(rb"[^ \t\r\n][^\n]*")
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Record(NamedTuple):
    """A record that can be evaluated."""

    place: int
    """Its number in the body, from 0."""
    time_us: int
    event: bytes
    """As it stands in a batch, or alone in a line."""


class _Results(msgspec.Struct):
    results: list[msgspec.Raw]


class _Result(msgspec.Struct):
    """The result of an event."""

    actions: list[msgspec.Raw]
    errors: list[RefusedRecord] = []


@dataclass(slots=True)
class Intake:
    """The records of a body: those that can be evaluated, by time, and the others with the reason."""

    records: list[Record]
    refused: dict[int, Refusal]
    count: int


def take_in(body: bytes, time: str | None, now_us: int, limits: Limits) -> Intake:
    """Find the records of a body: an object, an array of objects, or an object a line.

    `time` names the field with their time; without it, that is `now_us`. Raises Refusal 1400 if there are too
    many of them, 1000 if the body holds too much.
    """
    with without_collector(body):
        check_count(body, limits.body_values_max)
        texts = [*islice(_texts(body), limits.batch_events_max + 1)]
        if len(texts) > limits.batch_events_max:
            raise Refusal(Entry(1400, f"the body has more than {limits.batch_events_max} records"))
        intake = Intake([], {}, len(texts))
        type_, value = _reader(time or "")
        for index, text in enumerate(texts):
            try:
                # What is JSON cannot break out of the line in which it is put.
                record = decode(text, type_, limits)
                time_us = now_us if time is None else _time_us(value(record), time)
            except Refusal as refusal:
                entries = [
                    Entry(one.code, one.message.replace("the body", "the record")) for one in refusal.entries
                ]
                intake.refused[index] = Refusal(*entries)
                continue
            time_ms = time_us / 1000 if time_us % 1000 else time_us // 1000
            line = b'{"fields":%b,"timestamp_ms":%b}' % (text.replace(b"\n", b" "), str(time_ms).encode())
            intake.records.append(Record(index, time_us, line))
        intake.records.sort(key=lambda record: record.time_us)
        return intake


def _texts(body: bytes) -> Iterator[bytes]:
    """Yield the texts of the records."""
    lines = (found[0] for found in _LINE.finditer(body))
    first = next(lines, b"")
    if first[:1] == b"[":
        try:
            yield from map(bytes, _ELEMENTS.decode(body))
        except (ValueError, RecursionError):
            pass
        else:
            return
    elif first and not _is_json(first) and _is_json(body):
        # One object over several lines.
        yield body
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


@lru_cache(256)
def _reader(name: str) -> tuple[type[msgspec.Struct], Callable[[Any], Any]]:
    """Return the type of a record of which only what leads to a name is decoded, and what gives its value."""
    keys = [*accumulate(name.split("."), "{}.{}".format)] if name else []
    members = [
        (f"member{number}", Any, msgspec.field(default=None, name=key)) for number, key in enumerate(keys)
    ]
    type_ = msgspec.defstruct("Record", members)
    if len(keys) == 1:
        return type_, attrgetter("member0")
    split = split_name(name) if name else None

    def value(record: Any) -> Any:
        found = dict(zip(keys, msgspec.structs.astuple(record), strict=True))
        assert split is not None, "only a record with a time has a value"
        return value_of(split, {key: member for key, member in found.items() if member is not None}, {})

    return type_, value


def _time_us(given: Any, name: str) -> int:
    """Return a time that a record has. Raises Refusal 1001."""
    time_us: float | None = None
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            pass
        else:
            time_us = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    elif isinstance(given, int | float) and not isinstance(given, bool):
        scale = next((scale for below, scale in _UNITS if abs(given) < below), _NANOSECOND_US)
        time_us = given * scale if abs(given) <= _TIME_US_MAX * 1000 else None
    if time_us is None or abs(time_us) > _TIME_US_MAX:
        what = "is missing" if given is None else "is no time in ISO 8601 and no number of seconds since 1970"
        raise Refusal(Entry(1001, f"`{name}` {what}"))
    return round(time_us)


async def evaluate(records: Sequence[Record], call: Callable[[Operation], Awaitable[Answer]]) -> list[bytes]:
    """Have records evaluated in their order, and return the result of each. Raises Refusal."""
    results: list[bytes] = []
    # If an answer is full, the others are sent again.
    while left := [record.event for record in records[len(results) :]]:
        answer = await call(evaluate_batch(b'{"events":[%b]}' % b",".join(left)))
        if isinstance(answer, Done):
            given = msgspec.json.decode(answer.result, type=_Results).results
            while len(given) > 1 and _NO_ROOM in bytes(given[-1]):
                given.pop()
            results += map(bytes, given)
            continue
        if answer.entries[0].code in _UNREADABLE:
            # In lines, each is judged by itself.
            answer = await call(evaluate_lines(b"\n".join(left)))
        if isinstance(answer, Refused):
            raise Refusal(*answer.entries)
        results += answer.result.split(b"\n")
    return results


def ingested(intake: Intake, results: Sequence[bytes], *, with_results: bool) -> bytes:
    """Return what became of records, as JSON. `results` are those of the ones that were evaluated.

    Raises Refusal if all were refused: the first, and those of its kind.
    """
    evaluated = dict(zip([record.place for record in intake.records], results, strict=True))
    fired = refused = 0
    shown, errors = list[msgspec.Raw](), list[RefusedRecord]()
    for index in range(intake.count):
        line = evaluated.get(index)
        if line is None:
            line = refused_result(intake.refused[index])
        result = msgspec.json.decode(line, type=_Result)
        fired += len(result.actions)
        refused += bool(result.errors)
        for error in result.errors[: ERRORS_MAX - len(errors)]:
            error.index = index
            errors.append(error)
        if with_results:
            shown.append(msgspec.Raw(line))
    if errors and refused == intake.count:
        kind = errors[0].code // 10
        same = [error for error in errors if error.code // 10 == kind]
        raise Refusal(*[Entry(error.code, f"record {error.index}: {error.message}") for error in same])
    said = {"accepted": intake.count - refused, "refused": refused, "fired": fired, "errors": errors}
    return msgspec.json.encode(said | ({"results": shown} if with_results else {}))
