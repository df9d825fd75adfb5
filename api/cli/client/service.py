"""An HTTP client of the running service: calls, retries, and the envelope unwrapped."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import httpx
import msgspec

RETRIED: Final = frozenset({1401, 1501})
"""Codes that guarantee that nothing was evaluated."""

RETRIED_WITH_KEY: Final = RETRIED | {1502, 1503}
"""With a key, an unknown outcome (1502) can be retried, and so can a shutdown (1503), after a restart."""

_GATEWAY: Final = frozenset({502, 503, 504})
"""Statuses of a proxy that cannot reach the service or lost the connection."""
_KEY: Final = "Idempotency-Key"
_TOO_MANY: Final = 1401
_OUTCOME_UNKNOWN: Final = 1502
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class ServiceError(Exception):
    """The service refused (`code` is its first error's), or cannot be reached (`code` is None).

    `unanswered` means that no reply came, so the outcome is unknown.
    """

    def __init__(
        self,
        message: str,
        code: int | None = None,
        *,
        unanswered: bool = False,
        retry_after_s: float = 1.0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.unanswered = unanswered
        self.retry_after_s = retry_after_s


class _Entry(msgspec.Struct):
    code: int
    message: str


class _Envelope(msgspec.Struct):
    success: bool
    errors: list[_Entry]
    messages: list[_Entry]
    result: Any


class Service:
    """The service at a URL; a context manager.

    Requests that are safe to repeat are retried for up to `patience_s` after the first failure, far less than
    the ten minutes for which the service stores the answer to a key.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience_s: float = 60.0,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience_s = patience_s
        self._sleep = sleep
        self._now_s = now_s
        try:
            base = _checked(httpx.URL(url))
            self._client = httpx.Client(
                base_url=base,
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                timeout=httpx.Timeout(60.0, connect=10.0),
                transport=transport,
                # No internet proxy between two processes of one machine.
                trust_env=base.host not in _LOOPBACK,
            )
        except (httpx.InvalidURL, ValueError, UnicodeError) as error:
            raise ServiceError(f"`{url}` is not the address of a service: {str(error).lower()}") from None
        self._url = str(base).rstrip("/")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def call(self, method: str, path: str, body: bytes | None = None, *, key: str = "") -> Any:
        """Return the result of one operation. Raises ServiceError.

        With an idempotency key, for operations that take one, it is also retried if the outcome is unknown:
        after a deadline, a time-out or a broken connection, even across a restart of the service.
        """
        failed_at_s: float | None = None
        in_doubt = False
        while True:
            try:
                return self._once(method, path, body, key)
            except ServiceError as error:
                now_s = self._now_s()
                failed_at_s = now_s if failed_at_s is None else failed_at_s
                in_doubt = in_doubt or error.unanswered or error.code == _OUTCOME_UNKNOWN
                if key and error.code == _TOO_MANY and not in_doubt:
                    # There may be no room to store another answer. Nothing was done yet, so no key is needed.
                    key = ""
                    continue
                if (
                    not _may_repeat(error, key)
                    or now_s + error.retry_after_s > failed_at_s + self._patience_s
                ):
                    raise
                wait_s = error.retry_after_s
            self._sleep(wait_s)

    def _once(self, method: str, path: str, body: bytes | None, key: str) -> Any:
        response = self._send(method, path, body, key)
        envelope = self._opened(response)
        if envelope.success:
            return envelope.result
        said = "\n".join(f"{entry.code} {entry.message}" for entry in envelope.errors)
        raise ServiceError(said, envelope.errors[0].code, retry_after_s=_retry_after_s(response))

    def _send(self, method: str, path: str, body: bytes | None, key: str) -> httpx.Response:
        try:
            return self._client.request(method, path, content=body, headers={_KEY: key} if key else None)
        except httpx.ConnectError:
            said = f"no service answers at {self._url}; is it running (`rule-detector serve`)?"
        except httpx.TimeoutException:
            said = f"{self._url} did not answer in time"
        except httpx.HTTPError as error:
            said = f"the connection to {self._url} failed: {str(error).lower()}"
        raise ServiceError(said, unanswered=True)

    def _opened(self, response: httpx.Response) -> _Envelope:
        try:
            envelope = msgspec.json.decode(response.content, type=_Envelope)
        except (ValueError, RecursionError):
            envelope = None
        if envelope is None or not (envelope.success or envelope.errors):
            raise ServiceError(
                f"{self._url} answered {response.status_code}, but not with this service's envelope",
                unanswered=response.status_code in _GATEWAY,
            )
        return envelope


def _may_repeat(error: ServiceError, key: str) -> bool:
    if key:
        return error.unanswered or error.code in RETRIED_WITH_KEY
    return error.code in RETRIED


def _checked(url: httpx.URL) -> httpx.URL:
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("it lacks http:// or a host")
    return url


def _retry_after_s(response: httpx.Response) -> float:
    try:
        return max(0.05, min(float(response.headers.get("Retry-After", "1")), 10.0))
    except ValueError:
        return 1.0
