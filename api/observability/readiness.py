"""The answer of /readyz."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET

from api.schema.envelope import Response, failure, refused, success
from api.schema.messages import cluster
from engine.language.diagnostics import Entry
from engine.runtime.concurrency.background import Kept
from engine.runtime.contract.figures import Status

_KEPT_S: Final = 1.0
_NOT_READY: Final = "the service is starting, or cannot serve now; with a token, /readyz says why"
_CLOSING: Final = refused([Entry(1503, "the server is shutting down")])
_RETRY: Final = ((b"retry-after", b"1"),)
NOT_READY: Final = failure(503, [Entry(1501, _NOT_READY)], _RETRY)
"""The answer to callers without a token while the service cannot serve."""


class _Answers(NamedTuple):
    without_token: Response
    with_token: Response


class Readiness:
    """Answers whether requests can be served. Anyone may ask, so the scheduler is asked once a second.

    With a token, the answer lists every problem and is always new; concurrent callers share it.
    """

    def __init__(self, status: Callable[[], Awaitable[Status]]) -> None:
        self._status = status
        self._kept = Kept(self._look, _KEPT_S)
        self._new = Kept(self._look, 0.0)
        self._closing = False

    def announce_shutdown(self) -> None:
        """Answer 503 from now on."""
        self._closing = True

    async def answer(self, *, has_token: bool) -> Response:
        """Return the response. Raises DetectorUnavailable."""
        if self._closing:
            return _CLOSING
        return (await self._new.get()).with_token if has_token else (await self._kept.get()).without_token

    @property
    def last(self) -> Response:
        """The last answer to callers without a token. Callable from any thread."""
        if self._closing:
            return _CLOSING
        last = self._kept.last
        return NOT_READY if last is None else last.without_token

    async def _look(self) -> _Answers:
        status = await self._status()
        if status.reasons:
            reasons = [Entry(1501, reason) for reason in (*status.reasons, *status.problems)]
            return _Answers(NOT_READY, failure(503, reasons, _RETRY))
        ready, shown = (cluster.Ready(ready=True, problems=problems) for problems in (UNSET, status.problems))
        return _Answers(success(msgspec.json.encode(ready)), success(msgspec.json.encode(shown)))
