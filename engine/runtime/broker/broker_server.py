"""The broker's end of the connection to one front-end process."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.evaluation.wire.events import Answer
from engine.language.diagnostics import Refusal
from engine.runtime.broker.local_broker import LocalBroker
from engine.runtime.broker.message_link import MessageLink
from engine.runtime.broker.messages import (
    Answered,
    Ask,
    Call,
    Failed,
    FromFront,
    Note,
    Refusing,
    Returned,
    ToFront,
    Unavailable,
    Withdraw,
    encoder,
    from_front,
)
from engine.runtime.contract.errors import DetectorUnavailable

if TYPE_CHECKING:
    from engine.runtime.activation.mailbox import Request

_log = logging.getLogger(__name__)

REVOKE: Final = "revoke_token"


class BrokerServer:
    """Serves one front end until its connection ends, then withdraws its pending requests.

    `noted` is called with its notes, `revoked` after it has revoked a token, and `lost` when it is gone.
    """

    def __init__(
        self,
        broker: LocalBroker,
        *,
        noted: Callable[[Note], None],
        revoked: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._noted = noted
        self._revoked = revoked
        self._when_lost = lost
        self._link: MessageLink | None = None
        self._requests: dict[int, Request] = {}
        self._asks: dict[int, asyncio.Task[None]] = {}
        self.heard = 0
        """How often messages arrived."""
        self._methods: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "changes": broker.changes,
            "add_token": broker.add_token,
            REVOKE: broker.revoke_token,
            "create_detector": broker.create_detector,
            "delete_detector": broker.delete_detector,
            "tally": self._tally,
            "status": broker.status,
        }

    @property
    def under_way(self) -> int:
        """The number of unanswered calls and asks."""
        return len(self._requests) + len(self._asks)

    async def start(self, end: socket.socket) -> None:
        """Begin to serve the front end at the other end of a socket pair."""
        self._link = await MessageLink.over(end, from_front, self._take, self._lost, heeds=True)

    def note(self, name: str, body: bytes = b"") -> None:
        """Send a note to the front end; does nothing if it is gone."""
        self._send(Note(name, body))

    def close(self) -> None:
        """End the connection and withdraw its pending requests."""
        if self._link is not None:
            self._link.abort()

    def _send(self, message: ToFront) -> None:
        if self._link is not None:
            self._link.send(message)

    # -- incoming --------------------------------------------------------------------------------------------

    def _take(self, messages: Sequence[FromFront]) -> None:
        self.heard += 1
        for message in messages:
            match message:
                case Call():
                    self._submit(message)
                case Withdraw():
                    self._withdraw(message.number)
                case Ask():
                    task = asyncio.create_task(self._answer(message))
                    self._asks[message.number] = task
                    task.add_done_callback(partial(self._ask_over, message.number))
                case Note():
                    self._noted(message)

    def _submit(self, call: Call) -> None:
        try:
            request = self._broker.submit(call.detector_id, call.operation, call.request_id)
        except Exception as error:  # noqa: BLE001 -- the caller raises it
            self._send(_raised(call.number, error))
            return
        self._requests[call.number] = request
        request.answer.add_done_callback(partial(self._settled, call.number))

    def _settled(self, number: int, answer: asyncio.Future[Answer]) -> None:
        request = self._requests.pop(number, None)
        if request is not None:
            request.release()
        if answer.cancelled():
            return
        error = answer.exception()
        self._send(Answered(number, answer.result()) if error is None else _raised(number, error))

    def _withdraw(self, number: int) -> None:
        if (request := self._requests.pop(number, None)) is not None:
            request.answer.cancel()
            request.release()
        if (task := self._asks.get(number)) is not None:
            task.cancel()

    async def _answer(self, ask: Ask) -> None:
        try:
            arguments = msgspec.msgpack.decode(ask.arguments)
            result = await self._methods[ask.method](*arguments)
        except Exception as error:  # noqa: BLE001 -- as above
            self._send(_raised(ask.number, error))
            return
        if ask.method == REVOKE:
            self._revoked()
        self._send(Returned(ask.number, msgspec.Raw(encoder.encode(result))))

    def _ask_over(self, number: int, _task: asyncio.Task[None]) -> None:
        self._asks.pop(number, None)

    async def _tally(self, counted: list[tuple[list[str], float]]) -> None:
        await self._broker.tally({tuple(name): value for name, value in counted})

    def _lost(self) -> None:
        self._link = None
        for number in [*self._requests, *self._asks]:
            self._withdraw(number)
        self._when_lost()


def _raised(number: int, error: BaseException) -> ToFront:
    match error:
        case Refusal():
            return Refusing(number, error.entries)
        case DetectorUnavailable():
            return Unavailable(number, error.code, error.message, error.retry_after_s)
    _log.error("a call from a front end failed", exc_info=error)
    return Failed(number, f"{type(error).__name__}: {error}")
