"""The detectors of a service, as a front end in a process of its own reaches them."""

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
_OUT_OF_REACH: Final = "the process that hosts the detectors is out of reach"


class BrokerFailed(Exception):
    """The process that hosts the detectors met an error of its own, which its log has."""


class RemoteBroker:
    """Passes all that is asked to the process at the other end of a pair of sockets.

    Its notes go to `noted`, its end to `lost`; from then on every ask raises DetectorUnavailable.
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
        """Begin to listen to the other end."""
        self._link = await MessageLink.over(self._end, to_front, self._take, self._lost)

    async def close(self) -> list[str]:
        """Say no more. Whoever hosts the detectors saves them."""
        if self._link is not None:
            self._link.close()
        return []

    def refuse_all(self) -> None:
        """Answer all that waits for the other end. What becomes of it there is not known here."""
        self._refuse_asked("the server is shutting down")

    def note(self, name: str, body: bytes = b"") -> None:
        """Say something to whoever started this front end."""
        self._the_link().send(Note(name, body))

    # -- asking ----------------------------------------------------------------------------------------------

    async def call(self, detector_id: str, operation: Operation) -> Answer:
        """Have a detector carry out an operation. Raises Refusal 1200 and DetectorUnavailable."""
        number = self._number()
        call = Call(number, detector_id, operation, REQUEST_ID.get())
        return await self._answer_to(number, call)  # type: ignore[no-any-return]

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Give what is new since then."""
        return await self._ask("changes", Changes, tokens_seen, detectors_seen)

    async def add_token(self, token_id: str, digest: bytes, hint: str) -> int:
        """Keep a token; the version of the tokens that has it."""
        return await self._ask("add_token", int, token_id, digest, hint)

    async def revoke_token(self, token_id: str) -> int:
        """Forget a token; the version that has it no more. Raises Refusal 1202."""
        return await self._ask("revoke_token", int, token_id)

    async def create_detector(self, detector_id: str, name: str) -> int:
        """Enter a detector; the version of the catalogue that has it. Raises Refusal 1400."""
        return await self._ask("create_detector", int, detector_id, name)

    async def delete_detector(self, detector_id: str) -> int:
        """Remove a detector; the version that has it no more. Raises Refusal 1200."""
        return await self._ask("delete_detector", int, detector_id)

    async def tally(self, counted: Tallies) -> None:
        """Add to what front ends have counted."""
        await self._ask("tally", type(None), list(counted.items()))

    async def status(self) -> Status:
        """Say how it stands. Raises DetectorUnavailable 1501 where the other end does not say so soon."""
        try:
            async with asyncio.timeout(_STATUS_S):
                return await self._ask(_STATUS, Status)
        except TimeoutError:
            said = "the process that hosts the detectors does not answer"
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

    # -- what comes ------------------------------------------------------------------------------------------

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
        said = f"{why}; what became of the request is not known"
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(DetectorUnavailable(OUTCOME_UNKNOWN, said, self._settings.retry_s))
