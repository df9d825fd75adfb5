"""The clients: one that waits for each answer, and one to be awaited."""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Self, TypeVar

import httpx

from api.client.attempts import Attempts, Connection, Outcome, Send
from api.client.calls import PAGE, Call, list_detectors
from api.client.errors import ServiceError
from api.client.results import Detector, EventResult
from api.client.sending import Batches, Event, sending
from api.client.stream import stream, stream_async

T = TypeVar("T")

PATIENCE_S: Final = 60.0
"""How long safe retries go on: far less than the ten minutes for which the service stores an answer."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class _Service:
    """The address of a service, and what is known of it."""

    def __init__(self, url: str, token: str, patience_s: float, now_s: Callable[[], float]) -> None:
        self._options = _http_options(url, token)
        self._base: httpx.URL = self._options["base_url"]
        self._token = token
        self._connection = Connection(str(self._base).rstrip("/"), patience_s, now_s)


class Client(_Service):
    """The service at a URL; a context manager. Use it in one thread at a time.

    What is safe to repeat is retried for up to `patience_s` after the first failure: reads, what was not
    done for certain, and whatever has an idempotency key. `transport` replaces the network, for tests.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience_s: float = PATIENCE_S,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(url, token, patience_s, now_s)
        self._http = httpx.Client(transport=transport, **self._options)
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Carry out one call and give its result. Raises ServiceError."""
        return self._drive(self._connection.attempts(call))

    def detectors(self) -> Iterator[Detector]:
        """Yield all detectors in order of creation, page by page. Raises ServiceError."""
        after = ""
        while page := self.send(list_detectors(after)):
            yield from page
            after = page[-1].id
            if len(page) < PAGE:
                return

    def evaluate_many(self, detector_id: str, events: Iterable[Event]) -> Iterator[EventResult]:
        """Evaluate events in order and in batches, and yield one result for each, none evaluated twice.

        Raises ServiceError.
        """
        batches = Batches[bytes](len)
        for event in events:
            if ready := batches.add(event.json()):
                yield from self.evaluate_batch(detector_id, ready)
        yield from self.evaluate_batch(detector_id, batches.take())

    def evaluate_batch(self, detector_id: str, events: Sequence[bytes]) -> list[EventResult]:
        """Evaluate events, each as the JSON of `{fields, timestamp_ms}`, and give one result for each.

        Raises ServiceError.
        """
        return self._drive(sending(self._connection, detector_id, events))

    def stream(self, detector_id: str, events: Iterable[Event]) -> Iterator[EventResult]:
        """Send events as they come, and yield one result for each while others are still being sent.

        The events are read in a thread. A stream that ends early is not repeated: ServiceError says why.
        """
        return stream(self._base, self._token, detector_id, events)

    def _drive(self, steps: Attempts[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            outcome = None
            if isinstance(step, Send):
                try:
                    outcome = self._http.request(
                        step.method, step.path, content=step.body, headers=step.headers
                    )
                except httpx.HTTPError as error:
                    outcome = error
            else:
                self._sleep(step.seconds)


class AsyncClient(_Service):
    """As Client, with methods to be awaited; an asynchronous context manager."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience_s: float = PATIENCE_S,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(url, token, patience_s, now_s)
        self._http = httpx.AsyncClient(transport=transport, **self._options)
        self._sleep = sleep

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Carry out one call and give its result. Raises ServiceError."""
        return await self._drive(self._connection.attempts(call))

    async def detectors(self) -> AsyncIterator[Detector]:
        """Yield all detectors in order of creation, page by page. Raises ServiceError."""
        after = ""
        while page := await self.send(list_detectors(after)):
            for detector in page:
                yield detector
            after = page[-1].id
            if len(page) < PAGE:
                return

    async def evaluate_many(
        self, detector_id: str, events: Iterable[Event] | AsyncIterable[Event]
    ) -> AsyncIterator[EventResult]:
        """Evaluate events in order and in batches, and yield one result for each, none evaluated twice.

        Raises ServiceError.
        """
        batches = Batches[bytes](len)
        async for event in _each(events):
            if ready := batches.add(event.json()):
                for result in await self.evaluate_batch(detector_id, ready):
                    yield result
        for result in await self.evaluate_batch(detector_id, batches.take()):
            yield result

    async def evaluate_batch(self, detector_id: str, events: Sequence[bytes]) -> list[EventResult]:
        """Evaluate events, each as the JSON of `{fields, timestamp_ms}`, and give one result for each.

        Raises ServiceError.
        """
        return await self._drive(sending(self._connection, detector_id, events))

    def stream(
        self, detector_id: str, events: Iterable[Event] | AsyncIterable[Event]
    ) -> AsyncIterator[EventResult]:
        """Send events as they come, and yield one result for each while others are still being sent.

        A stream that ends early is not repeated: ServiceError says why.
        """
        return stream_async(self._base, self._token, detector_id, _each(events))

    async def _drive(self, steps: Attempts[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            outcome = None
            if isinstance(step, Send):
                try:
                    outcome = await self._http.request(
                        step.method, step.path, content=step.body, headers=step.headers
                    )
                except httpx.HTTPError as error:
                    outcome = error
            else:
                await self._sleep(step.seconds)


async def _each(events: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(events, AsyncIterable):
        async for event in events:
            yield event
    else:
        for event in events:
            yield event


def _http_options(url: str, token: str) -> dict[str, Any]:
    """Return the options of httpx for a service. Raises ServiceError if the URL is not one."""
    try:
        base = _checked(httpx.URL(url))
        headers = httpx.Headers({"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    except (httpx.InvalidURL, ValueError, UnicodeError) as error:
        raise ServiceError(f"`{url}` is not the address of a service: {str(error).lower()}") from None
    return {
        "base_url": base,
        "headers": headers,
        "timeout": httpx.Timeout(60.0, connect=10.0),
        # No internet proxy between two processes of one machine.
        "trust_env": base.host not in _LOOPBACK,
    }


def _checked(url: httpx.URL) -> httpx.URL:
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("it lacks http:// or a host")
    return url
