"""Recorded events sent to a detector in batches."""

import secrets
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from api.commands.firings import Entry, Outcome, Report
from api.commands.recordings import RecordedEvent, RecordingError
from api.commands.service import Service, ServiceError

EVENTS_MAX: Final = 1_000
"""Past this the gain of larger batches is small, and the progress would move in jumps."""
BYTES_MAX: Final = 4 * 1024 * 1024

_OF_THE_BODY: Final = frozenset({1000, 1001, 1003})
"""Refusals of a whole batch that one of its events may have brought upon all."""


class _Result(msgspec.Struct):
    results: list[Outcome]


def batches(events: Iterable[RecordedEvent]) -> Iterator[list[RecordedEvent]]:
    """Give the events in lists of bounded length and bytes, in order.

    Where the recording breaks off, what came before is given first. Raises RecordingError then.
    """
    batch: list[RecordedEvent] = []
    size_bytes = 0
    failure: RecordingError | None = None
    try:
        for event in events:
            if batch and (len(batch) >= EVENTS_MAX or size_bytes + len(event.fields) > BYTES_MAX):
                yield batch
                batch, size_bytes = [], 0
            batch.append(event)
            size_bytes += len(event.fields)
    except RecordingError as error:
        failure = error
    if batch:
        yield batch
    if failure is not None:
        raise failure


def send(service: Service, detector_id: str, batch: list[RecordedEvent], report: Report) -> None:
    """Evaluate a batch and count it into `report`. Raises ServiceError where the service takes none."""
    for event, outcome in zip(batch, _outcomes(service, detector_id, batch), strict=True):
        report.count(event, outcome)


def _outcomes(service: Service, detector_id: str, batch: list[RecordedEvent]) -> list[Outcome]:
    try:
        # With a key, so that it may be repeated whatever becomes of the answer.
        result = service.call(
            "POST",
            f"/api/detectors/{detector_id}/evaluate/batch",
            _body(batch),
            key=secrets.token_hex(16),
        )
    except ServiceError as error:
        if error.code not in _OF_THE_BODY:
            raise
        if len(batch) == 1:
            return [Outcome(actions=[], errors=[Entry(error.code, str(error).split(" ", 1)[1])])]
        # Nothing was evaluated. Halving finds the events at fault; the others still get in, in order.
        middle = len(batch) // 2
        return _outcomes(service, detector_id, batch[:middle]) + _outcomes(
            service, detector_id, batch[middle:]
        )
    outcomes = msgspec.convert(result, _Result).results
    if len(outcomes) != len(batch):
        raise ServiceError(f"the service answered {len(outcomes)} of {len(batch)} events")
    return outcomes


def _body(batch: list[RecordedEvent]) -> bytes:
    return b'{"events":[' + b",".join(_event(event) for event in batch) + b"]}"


def _event(event: RecordedEvent) -> bytes:
    whole, rest = divmod(event.time_us, 1000)
    timestamp = str(whole) if rest == 0 else repr(event.time_us / 1000)
    return b'{"fields":' + event.fields + b',"timestamp_ms":' + timestamp.encode() + b"}"
