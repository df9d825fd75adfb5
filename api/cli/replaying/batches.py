"""Sends recorded events to a detector in batches."""

import secrets
from collections.abc import Callable
from typing import Final

import msgspec

from api.cli.client.service import Service, ServiceError
from api.cli.recordings.reading import RecordedEvent
from api.cli.replaying.firings import Entry, Outcome, Report

EVENTS_MAX: Final = 1_000
"""Larger batches gain little and make the progress jump."""
BYTES_MAX: Final = 4 * 1024 * 1024

_OF_THE_BODY: Final = frozenset({1000, 1001, 1003})
"""Codes with which a single event can cause the whole batch to be refused."""


class _Result(msgspec.Struct):
    results: list[Outcome]


class Batches:
    """Collects events into batches of bounded length and bytes, in order, and hands each to `take`."""

    def __init__(self, take: Callable[[list[RecordedEvent]], None]) -> None:
        self._take = take
        self._batch: list[RecordedEvent] = []
        self._size_bytes = 0

    def add(self, event: RecordedEvent) -> None:
        """Add an event; hands over those before it if it does not fit."""
        size_bytes = len(event.json)
        if len(self._batch) >= EVENTS_MAX or self._size_bytes + size_bytes > BYTES_MAX:
            self.flush()
        self._batch.append(event)
        self._size_bytes += size_bytes

    def flush(self) -> None:
        """Hand over the collected events, if any."""
        batch, self._batch, self._size_bytes = self._batch, [], 0
        if batch:
            self._take(batch)


def send(service: Service, detector_id: str, batch: list[RecordedEvent], report: Report) -> None:
    """Evaluate a batch and count it into `report`. Raises ServiceError."""
    for event, outcome in zip(batch, _outcomes(service, detector_id, batch), strict=True):
        report.count(event, outcome)


def _outcomes(service: Service, detector_id: str, batch: list[RecordedEvent]) -> list[Outcome]:
    try:
        # The key makes the request safe to retry.
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
        # Nothing was evaluated. Halving finds the events at fault; the others are still evaluated in order.
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
    return b'{"fields":' + event.json + b',"timestamp_ms":' + timestamp.encode() + b"}"
