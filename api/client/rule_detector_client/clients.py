"""The clients: a blocking and an asynchronous one."""

import asyncio
import os
import secrets
import ssl
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from functools import partial
from typing import Any, Final, ParamSpec, Self, TypeVar

import httpx

from .calls import PAGE, Call, Value, ingest, list_detectors, relation_page, rules_page
from .feed import OPENED_AT_ONCE, FeedReader, Firing, Gap, OnBreak, Opened, opened, opened_at_once
from .json_values import object_json
from .results import Detector, EventResult, Ingested, Rule, ServiceError
from .sending import Batches, Event, OnRetry, RetryingSender, send_events
from .stream import stream, stream_async

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_S: Final = 60.0
"""How long safe retries continue: far less than the ten minutes for which the service stores answers."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class _Service:
    """The methods of both clients as coroutines, which never suspend for Client."""

    def __init__(self, token: str, options: dict[str, Any], opened: Opened, **sending: Any) -> None:
        self.base: httpx.URL = options["base_url"]
        self.tls: ssl.SSLContext | None = options.get("verify")
        self.token = token
        self._sender = RetryingSender(str(self.base).rstrip("/"), **sending)
        self._feeds = FeedReader(self._sender, opened)

    async def send(self, call: Call[T]) -> T:
        return await self._sender.carry_out(call)

    async def detectors(self) -> AsyncGenerator[Detector, None]:
        after = ""
        while page := await self.send(list_detectors(after)):
            for detector in page:
                yield detector
            after = page[-1].id
            if len(page) < PAGE:
                return

    async def rules(self, detector_id: str) -> AsyncGenerator[Rule, None]:
        after = 0
        while page := [
            one for one in await self.send(rules_page(detector_id, after)) if one.priority > after
        ]:
            for rule in page:
                yield rule
            after = page[-1].priority

    async def tuples(self, detector_id: str, name: str) -> AsyncGenerator[list[Value], None]:
        after: int | None = 0
        while after is not None:
            page = await self.send(relation_page(detector_id, name, after))
            for values in page.tuples:
                yield values
            after = page.next

    async def evaluate_many(
        self, detector_id: str, events: Iterable[Event] | AsyncIterable[Event]
    ) -> AsyncGenerator[EventResult, None]:
        batches = Batches[bytes](len)
        async for event in _each(events):
            if ready := batches.add(event.json()):
                for result in await self.evaluate_batch(detector_id, ready):
                    yield result
        for result in await self.evaluate_batch(detector_id, batches.take()):
            yield result

    async def ingest(
        self,
        detector_id: str,
        records: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
        time: str | None = None,
    ) -> AsyncGenerator[Ingested, None]:
        batches, place = Batches[bytes](len), 0

        def sent(batch: list[bytes]) -> Awaitable[Ingested]:
            # The key makes the request safe to retry.
            return self.send(ingest(detector_id, batch, time=time, key=secrets.token_hex(16)))

        async for record in _each(records):
            if ready := batches.add(object_json(record, f"records[{place}]")):
                yield await sent(ready)
            place += 1
        if ready := batches.take():
            yield await sent(ready)

    async def evaluate_batch(
        self,
        detector_id: str,
        events: Sequence[bytes],
        variables: Mapping[str, Any] | None = None,
        *,
        details: bool = False,
    ) -> list[EventResult]:
        return await send_events(self._sender, detector_id, events, variables, details=details)

    def stream(
        self, detector_id: str, events: Iterable[Event] | AsyncIterable[Event]
    ) -> AsyncIterator[EventResult]:
        return stream_async(self.base, self.token, detector_id, _each(events), self.tls)

    def firings(
        self, detector_id: str, after: int | None = None, on_break: OnBreak | None = None
    ) -> AsyncGenerator[Firing | Gap, None]:
        return self._feeds.entries(detector_id, after, on_break)

    async def last_firing(self, detector_id: str) -> int:
        return await self._feeds.end(detector_id)


class AsyncClient(_Service):
    """The same as Client with asynchronous methods; an asynchronous context manager.

    It has at most `connections_max` connections. Each feed that is being read takes one.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        ca_file: str | os.PathLike[str] | None = None,
        patience_s: float = PATIENCE_S,
        connections_max: int | None = 100,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        options = _http_options(url, token, ca_file)
        limits = httpx.Limits(max_connections=connections_max, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(transport=transport, limits=limits, **options)
        super().__init__(
            token,
            options,
            partial(opened, self._http, asyncio.Semaphore(OPENED_AT_ONCE)),
            request=self._http.request,
            sleep=sleep,
            patience_s=patience_s,
            now_s=now_s,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


class Client:
    """The service at a URL; a context manager. Use it in one thread at a time.

    Requests that are safe to repeat are retried for up to `patience_s` after the first failure: reads,
    requests that were certainly not carried out, and those with an idempotency key. `ca_file` has the
    certificates of trusted authorities, as PEM; the default is the system's. Before each retry, `on_retry` is
    called with the error and the seconds since the first failure. `transport` replaces the network, for
    tests.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        ca_file: str | os.PathLike[str] | None = None,
        patience_s: float = PATIENCE_S,
        on_retry: OnRetry | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        options = _http_options(url, token, ca_file)
        self._connected = partial(httpx.Client, transport=transport, **options)
        self._http, self._process = self._connected(), os.getpid()
        self._service = _Service(
            token,
            options,
            self._opened,
            request=self._request,
            sleep=_at_once(sleep),
            patience_s=patience_s,
            now_s=now_s,
            on_retry=on_retry,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._own().close()

    def _own(self) -> httpx.Client:
        """Return this process's connections: those of the one that forked it bring its answers."""
        if self._process != os.getpid():
            self._http, self._process = self._connected(), os.getpid()
        return self._http

    async def _request(self, *arguments: Any, **options: Any) -> httpx.Response:
        return self._own().request(*arguments, **options)

    def _opened(self, path: str, **how: Any) -> AsyncGenerator[httpx.Response | bytes, None]:
        return opened_at_once(self._own(), path, **how)

    def send(self, call: Call[T]) -> T:
        """Carry out one call and return its result. Raises ServiceError."""
        return _result_of(self._service.send(call))

    def detectors(self) -> Iterator[Detector]:
        """Yield all detectors in order of creation, page by page. Raises ServiceError."""
        return _results_of(self._service.detectors())

    def rules(self, detector_id: str) -> Iterator[Rule]:
        """Yield all rules of a detector by priority, page by page. Raises ServiceError."""
        return _results_of(self._service.rules(detector_id))

    def tuples(self, detector_id: str, name: str) -> Iterator[list[Value]]:
        """Yield all tuples of a relation, page by page. Raises ServiceError."""
        return _results_of(self._service.tuples(detector_id, name))

    def evaluate_many(self, detector_id: str, events: Iterable[Event]) -> Iterator[EventResult]:
        """Evaluate events in order, in batches, none of them twice, and yield one result for each.

        Raises ServiceError.
        """
        return _results_of(self._service.evaluate_many(detector_id, events))

    def evaluate_batch(
        self,
        detector_id: str,
        events: Sequence[bytes],
        variables: Mapping[str, Any] | None = None,
        *,
        details: bool = False,
    ) -> list[EventResult]:
        """Evaluate events, each as the JSON of `{fields, timestamp_ms}`, and return one result for each.

        `variables` are the `context.vars` of all of them. With `details`, actions have `keys` and `found`.
        Raises ServiceError.
        """
        return _result_of(self._service.evaluate_batch(detector_id, events, variables, details=details))

    def ingest(
        self, detector_id: str, records: Iterable[Mapping[str, Any]], time: str | None = None
    ) -> Iterator[Ingested]:
        """Evaluate plain records in batches, none of them twice, and yield the outcome of each batch.

        `time` is the field with the time of a record; by default, its time is that of arrival. Raises
        ServiceError, also if all records of a batch are refused.
        """
        return _results_of(self._service.ingest(detector_id, records, time))

    def stream(self, detector_id: str, events: Iterable[Event]) -> Iterator[EventResult]:
        """Send events as they come, and yield one result for each while others are still being sent.

        The events are read in a thread. A stream that ends early is not repeated; ServiceError says why.
        """
        return stream(self._service.base, self._service.token, detector_id, events, self._service.tls)

    def firings(
        self, detector_id: str, after: int | None = None, on_break: OnBreak | None = None
    ) -> Iterator[Firing | Gap]:
        """Yield the firings of a detector as they occur: those after a `seq`, by default new ones.

        A Gap stands for firings that the service no longer stores. After a break, continues after the last
        entry; `on_break` gets the reason, and the seconds until the next connection. Ends only with
        ServiceError: the service refuses, or has never answered at its address.
        """
        return _results_of(self._service.firings(detector_id, after, on_break))

    def last_firing(self, detector_id: str) -> int:
        """Return the `seq` of the newest firing of a detector, 0 if there is none. Raises ServiceError."""
        return _result_of(self._service.last_firing(detector_id))


def _at_once(work: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    async def done(*arguments: P.args, **options: P.kwargs) -> T:
        return work(*arguments, **options)

    return done


def _result_of(coroutine: Awaitable[T]) -> T:
    """Run a coroutine that never waits."""
    try:
        next(coroutine.__await__())
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("it waited")


def _results_of(results: AsyncGenerator[T, None]) -> Iterator[T]:
    """Run an asynchronous generator that never waits."""
    try:
        with suppress(StopAsyncIteration):
            while True:
                yield _result_of(anext(results))
    finally:
        _result_of(results.aclose())


async def _each(events: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(events, AsyncIterable):
        async for event in events:
            yield event
    else:
        for event in events:
            yield event


def _http_options(url: str, token: str, ca_file: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Return the options of httpx for a service. Raises ServiceError if the URL is not one."""
    verify: ssl.SSLContext | None = None
    if ca_file is not None:
        try:
            verify = ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            raise ServiceError(f"{os.fspath(ca_file)} has no certificates: {str(error).lower()}") from None
    try:
        base = _checked(httpx.URL(url))
    except (httpx.InvalidURL, ValueError) as error:
        raise ServiceError(f"`{url}` is not the address of a service: {str(error).lower()}") from None
    if not (token.isascii() and token.isprintable()):
        raise ServiceError("the token has characters that no token has; `serve` prints the first token")
    headers = httpx.Headers({"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    if verify is None and base.scheme == "http":
        # An empty context, which is not used: loading the system's certificates would take 20 ms.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return {
        "base_url": base,
        "headers": headers,
        # A proxy in the environment is not for connections within this machine.
        "trust_env": base.host not in _LOOPBACK,
        **({} if verify is None else {"verify": verify}),
    }


def _checked(url: httpx.URL) -> httpx.URL:
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("it lacks http:// or a host")
    return url
