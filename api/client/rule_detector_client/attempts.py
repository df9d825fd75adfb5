"""Carries out a call: decides when to repeat it, how long to wait before that, and when to give up."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import httpx
import msgspec

from .calls import Call
from .results import Envelope, ServiceError

T = TypeVar("T")

NOT_DONE: Final = frozenset({1401, 1501, 1503})
"""Codes that guarantee that nothing was done."""

OUTCOME_UNKNOWN: Final = 1502
_TOO_MANY: Final = 1401
_GATEWAY: Final = frozenset({502, 503, 504})
"""Statuses of a proxy that cannot reach the service or lost the connection."""
_CONNECT_S: Final = 10.0
_RETRY_AFTER_S_MIN: Final = 0.05
_RETRY_AFTER_S_MAX: Final = 10.0


@dataclass(slots=True)
class RetryingSender:
    """Sends calls to the service at one address, and repeats them while that is safe."""

    url: str
    request: Callable[..., Awaitable[httpx.Response]]
    sleep: Callable[[float], Awaitable[None]]
    patience_s: float
    now_s: Callable[[], float]
    has_answered: bool = False

    async def carry_out(self, call: Call[T]) -> T:
        """Return the result of a call, which is repeated while that is safe.

        It is not repeated later than `patience_s` after the first failure. Raises ServiceError.
        """
        key = call.key
        failed_at_s: float | None = None
        in_doubt = False
        while True:
            try:
                return await self._attempt(call, {"Idempotency-Key": key} if key else {})
            except ServiceError as error:
                now_s = self.now_s()
                failed_at_s = now_s if failed_at_s is None else failed_at_s
                in_doubt = in_doubt or error.in_doubt
                if key and error.code == _TOO_MANY and not in_doubt:
                    # There may be no room to store another answer. Nothing was done yet, so no key is needed.
                    key = ""
                    continue
                safe = self._may_repeat(error, can_repeat=bool(key) or not call.changes, has_key=bool(key))
                if not safe or now_s + error.retry_after_s > failed_at_s + self.patience_s:
                    raise
                wait_s = error.retry_after_s
            await self.sleep(wait_s)

    def _may_repeat(self, error: ServiceError, *, can_repeat: bool, has_key: bool) -> bool:
        if not error.sent:
            # If nothing ever answered at the address, it may be wrong.
            return self.has_answered or has_key
        return error.code in NOT_DONE or (error.in_doubt and can_repeat)

    async def _attempt(self, call: Call[T], headers: dict[str, str]) -> T:
        headers["Content-Type"] = call.content_type
        how = {"headers": headers, "timeout": httpx.Timeout(call.timeout_s, connect=_CONNECT_S)}
        try:
            response = await self.request(call.method, call.path, content=call.body, **how)
        except httpx.HTTPError as error:
            raise self.unanswered(error) from None
        envelope = self.answer(response)
        try:
            return call.read(envelope)
        except msgspec.ValidationError as error:
            raise ServiceError(
                f"{self.url} answered {call.method} {call.path} with something else: {error}"
            ) from None

    def answer(self, response: httpx.Response) -> Envelope:
        """Return the envelope of a success. Raises ServiceError for any other response."""
        envelope = self._envelope(response)
        self.has_answered = True
        if not envelope.success:
            said = "\n".join(f"{entry.code} {entry.message}" for entry in envelope.errors)
            raise ServiceError(
                said,
                status=response.status_code,
                entries=tuple(envelope.errors),
                in_doubt=envelope.errors[0].code == OUTCOME_UNKNOWN,
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
                in_doubt=response.status_code in _GATEWAY,
            )
        return envelope

    def unanswered(self, error: httpx.HTTPError) -> ServiceError:
        """Return the error of a request without an answer."""
        match error:
            case httpx.ConnectError() if "CERTIFICATE_VERIFY_FAILED" in str(error):
                reason = str(error).rpartition("failed: ")[2]
                said = f"the certificate of {self.url} is not trusted: {reason}; name its CA file"
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
