"""Carries out calls: when to repeat one, how long to wait before that, and when to give up.

Sends events in batches of bounded size, each with an idempotency key, and splits a batch that is refused.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar

import httpx
import msgspec

from .call import Call
from .calls import evaluate_batch
from .json_values import event_json
from .results import Envelope, EventResult, ServiceError

T = TypeVar("T")

OnRetry: TypeAlias = Callable[[ServiceError, float], None]
"""Called before a call is repeated, with the error and the seconds since its first failure."""

NOT_DONE: Final = frozenset({1401, 1501, 1503})
"""Codes that guarantee that nothing was done."""

OUTCOME_UNKNOWN: Final = frozenset({1500, 1502})
"""Codes that leave open whether the request was carried out. An internal error may follow the work."""
_NO_PATH: Final = 1004
_TOO_MANY: Final = 1401
_GATEWAY: Final = frozenset({502, 503, 504})
"""Statuses of a proxy that cannot reach the service or lost the connection."""
NOT_CARRIED_OUT: Final = range(300, 500)
"""Statuses of a proxy that did not forward the request."""
_CONNECT_S: Final = 10.0
_RETRY_AFTER_S_MIN: Final = 0.05
_RETRY_AFTER_S_MAX: Final = 10.0


@dataclass(slots=True)
class RetryingSender:
    """Sends calls to the service at one address, and repeats them if that is safe."""

    url: str
    request: Callable[..., Awaitable[httpx.Response]]
    sleep: Callable[[float], Awaitable[None]]
    patience_s: float
    now_s: Callable[[], float]
    on_retry: OnRetry | None = None
    has_answered: bool = False

    async def carry_out(self, call: Call[T]) -> T:
        """Return the result of a call, which is repeated if that is safe.

        It is not repeated later than `patience_s` after the first failure. Raises ServiceError, in doubt if
        any of the requests may have been carried out.
        """
        key = call.key
        failed_at_s: float | None = None
        in_doubt = False
        while True:
            try:
                envelope = await self._attempt(call, {"Idempotency-Key": key} if key else {})
                break
            except ServiceError as error:
                now_s = self.now_s()
                failed_at_s = now_s if failed_at_s is None else failed_at_s
                in_doubt = in_doubt or error.in_doubt
                if key and error.code == _TOO_MANY and not in_doubt:
                    # There may be no room to store another answer. Nothing was done, so no key is needed.
                    key = ""
                    continue
                safe = self._may_repeat(error, can_repeat=bool(key) or not call.changes, has_key=bool(key))
                if not safe or now_s + error.retry_after_s > failed_at_s + self.patience_s:
                    error.in_doubt = in_doubt
                    raise
                wait_s = error.retry_after_s
                if self.on_retry is not None:
                    self.on_retry(error, now_s - failed_at_s)
            await self.sleep(wait_s)
        try:
            return call.read(envelope)
        except ValueError as error:
            said = f"{self.url} answered {call.method} {call.path} with something else: {error}"
            raise ServiceError(said, in_doubt=True) from None

    def _may_repeat(self, error: ServiceError, *, can_repeat: bool, has_key: bool) -> bool:
        if not error.sent:
            # If there was never an answer, the address may be wrong.
            return self.has_answered or has_key
        is_lost = error.in_doubt and (error.status is None or error.status in _GATEWAY)
        return error.code in NOT_DONE or (is_lost and can_repeat)

    async def _attempt(self, call: Call[Any], headers: dict[str, str]) -> Envelope:
        headers["Content-Type"] = call.content_type
        how = {"headers": headers, "timeout": httpx.Timeout(call.timeout_s, connect=_CONNECT_S)}
        try:
            response = await self.request(call.method, call.path, content=call.body, **how)
        except httpx.HTTPError as error:
            raise self.unanswered(error) from None
        return self.answer(response)

    def answer(self, response: httpx.Response) -> Envelope:
        """Return the envelope of a success. Raises ServiceError for any other response."""
        envelope = self._envelope(response)
        self.has_answered = True
        if not envelope.success:
            said = "\n".join(f"{entry.code} {entry.message}" for entry in envelope.errors)
            if envelope.errors[0].code == _NO_PATH and self.url.rstrip("/").endswith("/api"):
                said += f"; is the service at {self.url.rstrip('/').removesuffix('/api')}, without `/api`?"
            raise ServiceError(
                said,
                status=response.status_code,
                entries=tuple(envelope.errors),
                in_doubt=envelope.errors[0].code in OUTCOME_UNKNOWN,
                retry_after_s=_retry_after_s(response),
            )
        return envelope

    def _envelope(self, response: httpx.Response) -> Envelope:
        try:
            envelope = msgspec.json.decode(response.content, type=Envelope)
        except (ValueError, RecursionError):
            envelope = None
        if envelope is None or not (envelope.success or envelope.errors):
            raise ServiceError(
                f"{self.url} answered {response.status_code}, but not with this service's envelope",
                status=response.status_code,
                in_doubt=response.status_code not in NOT_CARRIED_OUT,
            )
        return envelope

    def unanswered(self, error: httpx.HTTPError) -> ServiceError:
        """Return the error of a request without an answer."""
        match error:
            case httpx.ConnectError() if "CERTIFICATE_VERIFY_FAILED" in str(error):
                reason = str(error).rpartition("failed: ")[2]
                said = f"the certificate of {self.url} is not trusted: {reason}; name its CA file"
            case httpx.ConnectError() if "WRONG_VERSION_NUMBER" in str(error):
                said = f"what answers at {self.url} does not use TLS; its address begins with http://"
            case httpx.ConnectError():
                said = f"no service answers at {self.url}; is it running (`rule-detector serve`)?"
            case httpx.TimeoutException():
                said = f"{self.url} did not answer in time"
            case _:
                said = f"the connection to {self.url} failed: {str(error).lower()}"
        sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        return ServiceError(said, in_doubt=sent, sent=sent)


def _retry_after_s(response: httpx.Response) -> float:
    try:
        asked_s = float(response.headers.get("Retry-After", "1"))
    except ValueError:
        return 1.0
    return max(_RETRY_AFTER_S_MIN, min(asked_s, _RETRY_AFTER_S_MAX))


EVENTS_MAX: Final = 1_000
"""Larger batches gain little."""
BYTES_MAX: Final = 4 * 1024 * 1024

_OF_THE_BODY: Final = frozenset({1000, 1001, 1003})
"""Codes with which a single event can cause the whole batch to be refused."""
_FULL: Final = 1400
"""The code of events whose results no longer fit into the answer; they were not evaluated."""


class Event(msgspec.Struct, frozen=True):
    """An event. Its fields are a mapping, or JSON in a msgspec.Raw; its time may be a zoned datetime."""

    fields: Mapping[str, Any] | msgspec.Raw
    timestamp_ms: float | datetime

    def json(self) -> bytes:
        """Return the event as JSON for a batch, with numbers converted like in the library.

        Raises ServiceError 1001 with the name of a field that JSON cannot express.
        """
        return event_json(self.fields, self.timestamp_ms)


@dataclass(slots=True)
class Batches(Generic[T]):
    """Collects items into batches of bounded number and bytes, in order."""

    size_bytes: Callable[[T], int] | None
    """The size of an item; None if only the number is bounded."""
    events_max: int = EVENTS_MAX
    bytes_max: int = BYTES_MAX
    _batch: list[T] = field(default_factory=list)
    _size_bytes: int = 0

    def add(self, item: T) -> list[T]:
        """Add an item. If it does not fit, return the batch and begin another; else return an empty list."""
        size_bytes = self.size_bytes(item) if self.size_bytes else 0
        full = len(self._batch) >= self.events_max or self._size_bytes + size_bytes > self.bytes_max
        ready = self.take() if full else []
        self._batch.append(item)
        self._size_bytes += size_bytes
        return ready

    def add_all(self, items: Sequence[T]) -> Iterator[list[T]]:
        """Add items, and yield the batches that `add` returns."""
        if self.size_bytes is not None:
            yield from filter(None, map(self.add, items))
            return
        added = 0
        while (room := self.events_max - len(self._batch)) < len(items) - added:
            self._batch += items[added : added + room]
            added += room
            yield self.take()
        self._batch += items[added:]

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
    """Evaluate events in order, each the JSON of `{fields, timestamp_ms}`; return one result for each.

    If one event causes a batch to be refused, it is found by halving, and the others are still evaluated.
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
            said = f"the service answered {len(given)} of {len(batch)} events"
            raise ServiceError(said, in_doubt=True)
        done = next((place for place, one in enumerate(given) if _did_not_fit(one)), len(given))
        # The first event of a batch is always evaluated, so this terminates.
        assert done > 0 or not given, "the first event of a batch fits"
        results += given[:done]
        if done < len(batch):
            waiting.append(batch[done:])
    return results


def _did_not_fit(result: EventResult) -> bool:
    return any(entry.code == _FULL for entry in result.errors)
