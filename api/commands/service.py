"""A running service as the command line talks to it: HTTP, the envelope taken off."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import httpx
import msgspec

RETRIED: Final = frozenset({1401, 1501})
"""Refusals that promise that nothing was evaluated: the detector is behind, or waking."""

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class ServiceError(Exception):
    """The service refused (`code` is that of its first error), or cannot be reached (None)."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class _Entry(msgspec.Struct):
    code: int
    message: str


class _Envelope(msgspec.Struct):
    success: bool
    errors: list[_Entry]
    messages: list[_Entry]
    result: Any


class Service:
    """The service at a URL; a context manager. What asks it to wait is waited for, `patience_s` at most."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience_s: float = 60.0,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._patience_s = patience_s
        self._sleep = sleep
        try:
            base = _checked(httpx.URL(url))
            self._client = httpx.Client(
                base_url=base,
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                timeout=httpx.Timeout(60.0, connect=10.0),
                transport=transport,
                # A proxy for the internet has no business between two processes of one machine.
                trust_env=base.host not in _LOOPBACK,
            )
        except (httpx.InvalidURL, ValueError, UnicodeError) as error:
            raise ServiceError(f"`{url}` is no address of a service: {str(error).lower()}") from None
        self._url = str(base).rstrip("/")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def call(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Give the result of one operation. Raises ServiceError."""
        waited_s = 0.0
        while True:
            response = self._send(method, path, body)
            envelope = self._opened(response)
            if envelope.success:
                return envelope.result
            code = envelope.errors[0].code
            wait_s = _retry_after_s(response)
            if code not in RETRIED or waited_s + wait_s > self._patience_s:
                raise ServiceError(
                    "\n".join(f"{entry.code} {entry.message}" for entry in envelope.errors), code
                )
            self._sleep(wait_s)
            waited_s += wait_s

    def _send(self, method: str, path: str, body: bytes | None) -> httpx.Response:
        try:
            return self._client.request(method, path, content=body)
        except httpx.ConnectError:
            raise ServiceError(
                f"no service answers at {self._url}; is it running (`rule-detector serve`)?"
            ) from None
        except httpx.TimeoutException:
            raise ServiceError(f"{self._url} did not answer in time") from None
        except httpx.HTTPError as error:
            raise ServiceError(f"the connection to {self._url} failed: {str(error).lower()}") from None

    def _opened(self, response: httpx.Response) -> _Envelope:
        try:
            envelope = msgspec.json.decode(response.content, type=_Envelope)
        except (ValueError, RecursionError):
            envelope = None
        if envelope is None or not (envelope.success or envelope.errors):
            raise ServiceError(f"{self._url} answered {response.status_code}, but not as this service does")
        return envelope


def _checked(url: httpx.URL) -> httpx.URL:
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("it lacks http:// or a host")
    return url


def _retry_after_s(response: httpx.Response) -> float:
    try:
        return max(0.05, min(float(response.headers.get("Retry-After", "1")), 10.0))
    except ValueError:
        return 1.0
