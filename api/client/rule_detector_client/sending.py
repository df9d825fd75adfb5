"""Sends events in batches of bounded size, each with an idempotency key; splits a batch that is refused."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from .attempts import RetryingSender
from .calls import evaluate_batch, ingest
from .json_values import event_json
from .results import EventResult, Ingested, ServiceError

T = TypeVar("T")

EVENTS_MAX: Final = 1_000
"""Larger batches gain little."""
BYTES_MAX: Final = 4 * 1024 * 1024

_OF_THE_BODY: Final = frozenset({1000, 1001, 1003})
"""Codes with which a single event can cause the whole batch to be refused."""
_FULL: Final = 1400
"""The code of events whose results no longer fit into the answer; they were not evaluated."""


class Event(msgspec.Struct, frozen=True):
    """An event. Its fields are a mapping, or JSON in a msgspec.Raw."""

    fields: dict[str, Any] | msgspec.Raw
    timestamp_ms: float

    def json(self) -> bytes:
        """Return the event as it stands in a batch, its numbers as the library takes them.

        Raises ServiceError 1001 with the name of a field that JSON cannot express.
        """
        return event_json(self.fields, self.timestamp_ms)


@dataclass(slots=True)
class Batches(Generic[T]):
    """Collects items into batches of bounded number and bytes, in order."""

    size_bytes: Callable[[T], int]
    events_max: int = EVENTS_MAX
    bytes_max: int = BYTES_MAX
    _batch: list[T] = field(default_factory=list)
    _size_bytes: int = 0

    def add(self, item: T) -> list[T]:
        """Add an item. If it does not fit, return the batch and begin another; else return an empty list."""
        size_bytes = self.size_bytes(item)
        full = len(self._batch) >= self.events_max or self._size_bytes + size_bytes > self.bytes_max
        ready = self.take() if full else []
        self._batch.append(item)
        self._size_bytes += size_bytes
        return ready

    def take(self) -> list[T]:
        """Return the collected items, and forget them."""
        batch, self._batch, self._size_bytes = self._batch, [], 0
        return batch


async def send_events(
    sender: RetryingSender,
    detector_id: str,
    events: Sequence[bytes],
    variables: Mapping[str, Any] | None = None,
    *,
    details: bool = False,
) -> list[EventResult]:
    """Evaluate events in order, each the JSON of `{fields, timestamp_ms}`; give one result for each.

    Where one event causes a batch to be refused, halving finds it, and the others are still evaluated.
    Raises ServiceError.
    """
    results: list[EventResult] = []
    waiting = [list(events)] if events else []
    while waiting:
        batch = waiting.pop()
        try:
            # The key makes the request safe to retry.
            key = secrets.token_hex(16)
            call = evaluate_batch(detector_id, batch, variables, key=key, details=details)
            given = await sender.carry_out(call)
        except ServiceError as error:
            if error.code not in _OF_THE_BODY:
                raise
            if len(batch) == 1:
                results.append(EventResult(actions=[], errors=list(error.entries)))
            else:
                middle = len(batch) // 2
                waiting += [batch[middle:], batch[:middle]]
            continue
        if len(given) != len(batch):
            raise ServiceError(f"the service answered {len(given)} of {len(batch)} events")
        done = next((place for place, one in enumerate(given) if _did_not_fit(one)), len(given))
        # The first event of a batch is always evaluated, so this comes to an end.
        assert done > 0 or not given, "the first event of a batch fits"
        results += given[:done]
        if done < len(batch):
            waiting.append(batch[done:])
    return results


async def send_records(
    sender: RetryingSender, detector_id: str, records: Sequence[bytes], time: str | None
) -> Ingested:
    """Evaluate records, each as JSON, once. Raises ServiceError, also if all are refused."""
    return await sender.carry_out(ingest(detector_id, records, time=time, key=secrets.token_hex(16)))


def _did_not_fit(result: EventResult) -> bool:
    return any(entry.code == _FULL for entry in result.errors)
