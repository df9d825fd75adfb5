"""The broker as a front-end process reaches it, over a connection to the broker's process."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from engine.evaluation.wire.events import Answer
from engine.language.diagnostics import Refusal
from engine.runtime.broker.broker import Status, Tallies
from engine.runtime.broker.message_link import MessageLink
from engine.runtime.broker.messages import (
    Answered,
    Ask,
    Call,
    Failed,
    Note,
    Refusing,
    Returned,
    ToFront,
    Unavailable,
    Withdraw,
    encoder,
    to_front,
)
from engine.runtime.contract.catalogue_changes import Changes
from engine.runtime.contract.errors import OUTCOME_UNKNOWN, STARTING, DetectorUnavailable
from engine.runtime.contract.operations import Operation
from engine.runtime.contract.request_ids import REQUEST_ID
from engine.runtime.contract.settings import RuntimeSettings

T = TypeVar("T")

_log = logging.getLogger(__name__)

_STATUS_S: Final = 5.0
_STATUS: Final = "status"
_OUT_OF_REACH: Final = "the broker's process cannot be reached"


class BrokerFailed(Exception):
    """The broker's process met an internal error, which is in its log."""


class RemoteBroker:
    """Forwards every call to the broker's process at the other end of a socket pair.

    `noted` is called with its notes, and `lost` when the connection ends. From then on every call raises
    DetectorUnavailable.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        end: socket.socket,
        noted: Callable[[Note], None],
        lost: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._end = end
        self._noted = noted
        self._when_lost = lost
        self._loop = asyncio.get_running_loop()
        self._link: MessageLink | None = None
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._asks = 0

    async def start(self) -> None:
        """Connect to the broker's process."""
        self._link = await MessageLink.over(self._end, to_front, self._take, self._lost)

    async def close(self) -> list[str]:
        """End the connection. The broker's process saves the detectors."""
        if self._link is not None:
            self._link.close()
        return []

    def refuse_all(self) -> None:
        """Refuse all pending requests. Their outcome in the broker's process is unknown here."""
        self._refuse_asked("the server is shutting down")

    def note(self, name: str, body: bytes = b"") -> None:
        """Send a note to the process that started this front end."""
        self._the_link().send(Note(name, body))

    # -- calls -----------------------------------------------------------------------------------------------

    async def call(self, detector_id: str, operation: Operation) -> Answer:
        """Execute an operation on a detector. Raises Refusal 1200 and DetectorUnavailable."""
        number = self._number()
        call = Call(number, detector_id, operation, REQUEST_ID.get())
        return await self._answer_to(number, call)  # type: ignore[no-any-return]

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Return the changes since those versions."""
        return await self._ask("changes", Changes, tokens_seen, detectors_seen)

    async def add_token(self, token_id: str, digest: bytes, hint: str) -> int:
        """Store a token; return the version of the tokens that includes it."""
        return await self._ask("add_token", int, token_id, digest, hint)

    async def revoke_token(self, token_id: str) -> int:
        """Remove a token; return the version without it. Raises Refusal 1202."""
        return await self._ask("revoke_token", int, token_id)

    async def create_detector(self, detector_id: str, name: str) -> int:
        """Add a detector; return the catalogue's version that includes it. Raises Refusal 1400."""
        return await self._ask("create_detector", int, detector_id, name)

    async def delete_detector(self, detector_id: str) -> int:
        """Remove a detector; return the version without it. Raises Refusal 1200."""
        return await self._ask("delete_detector", int, detector_id)

    async def tally(self, counted: Tallies) -> None:
        """Add to the metrics of front ends."""
        await self._ask("tally", type(None), list(counted.items()))

    async def status(self) -> Status:
        """Return the broker's state. Raises DetectorUnavailable 1501 if it does not answer soon."""
        try:
            async with asyncio.timeout(_STATUS_S):
                return await self._ask(_STATUS, Status)
        except TimeoutError:
            said = "the broker's process does not answer"
            raise DetectorUnavailable(STARTING, said, self._settings.retry_s) from None

    async def _ask(self, method: str, kind: type[T], *arguments: object) -> T:
        number = self._number()
        raw = msgspec.Raw(encoder.encode(arguments))
        result = await self._answer_to(number, Ask(number, method, raw))
        return msgspec.msgpack.decode(result, type=kind)

    async def _answer_to(self, number: int, ask: Call | Ask) -> Any:
        link = self._the_link()
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._asked[number] = answer
        link.send(ask)
        try:
            return await answer
        except asyncio.CancelledError:
            link.send(Withdraw(number))
            raise
        finally:
            self._asked.pop(number, None)

    def _number(self) -> int:
        self._asks += 1
        return self._asks

    def _the_link(self) -> MessageLink:
        if self._link is None:
            raise DetectorUnavailable(STARTING, _OUT_OF_REACH, self._settings.retry_s)
        return self._link

    # -- incoming --------------------------------------------------------------------------------------------

    def _take(self, messages: Sequence[ToFront]) -> None:
        for message in messages:
            if isinstance(message, Note):
                self._noted(message)
                continue
            answer = self._asked.get(message.number)
            if answer is None or answer.done():
                continue
            match message:
                case Answered():
                    answer.set_result(message.answer)
                case Returned():
                    answer.set_result(message.result)
                case Refusing():
                    answer.set_exception(Refusal(*message.entries))
                case Unavailable():
                    answer.set_exception(
                        DetectorUnavailable(message.code, message.message, message.retry_after_s)
                    )
                case Failed():
                    answer.set_exception(BrokerFailed(message.text))

    def _lost(self) -> None:
        self._link = None
        self._refuse_asked(_OUT_OF_REACH)
        self._when_lost()

    def _refuse_asked(self, why: str) -> None:
        said = f"{why}; the outcome of the request is unknown"
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(DetectorUnavailable(OUTCOME_UNKNOWN, said, self._settings.retry_s))
