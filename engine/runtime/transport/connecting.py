"""Connecting to a listening process: the token first, then the protocol of the connection."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar, cast

from engine.runtime.contract.requests.routes import Address
from engine.runtime.transport.frames import TOKEN, TOKEN_BYTES, WELCOME, FrameReader, Garbage, pieces
from engine.runtime.transport.tls import client_context

_CONNECT_S: Final = 5.0

P = TypeVar("P", bound=asyncio.BufferedProtocol)


async def connect(address: Address, protocol: Callable[[], P], *, within_s: float = _CONNECT_S) -> P:
    """Connect to a listener, and give the protocol of the connection. Raises OSError."""
    loop = asyncio.get_running_loop()
    transport: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(within_s):
            if isinstance(address.place, str):
                transport, waiting = await loop.create_unix_connection(_WelcomeHandshake, address.place)
            else:
                tls = client_context() if address.tls else None
                transport, waiting = await loop.create_connection(_WelcomeHandshake, *address.place, ssl=tls)
            transport.writelines(pieces(TOKEN, address.token))
            await waiting.welcomed
    except BaseException:
        if transport is not None:
            transport.abort()
        raise
    made = protocol()
    transport.set_protocol(made)
    made.connection_made(transport)
    return made


class _Handshake(asyncio.BufferedProtocol, ABC):
    """Reads one frame."""

    def __init__(self, kind: int, bytes_max: int) -> None:
        self._reader = FrameReader(kind, bytes_max=bytes_max)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Take the frame. The peer sends nothing more before it has an answer."""
        assert self._transport is not None, "it is connected"
        try:
            for _, payload in self._reader.received(nbytes):
                self.payload_received(bytes(payload))
        except Garbage:
            self._transport.abort()

    @abstractmethod
    def payload_received(self, payload: bytes) -> None:
        """Take the frame's payload."""


class _WelcomeHandshake(_Handshake):
    """Waits for the welcome."""

    def __init__(self) -> None:
        super().__init__(WELCOME, 0)
        self.welcomed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def payload_received(self, payload: bytes) -> None:  # noqa: ARG002 -- it is empty
        if not self.welcomed.done():
            self.welcomed.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.welcomed.done():
            self.welcomed.set_exception(ConnectionResetError(f"its connection ended: {exc or 'no welcome'}"))
            self.welcomed.exception()


class TokenHandshake(_Handshake):
    """Waits for the token, then continues with another protocol. Ends a connection without the token."""

    def __init__(
        self,
        is_token: Callable[[bytes], bool],
        protocol: Callable[[], asyncio.BufferedProtocol],
        within_s: float,
    ) -> None:
        super().__init__(TOKEN, TOKEN_BYTES)
        self._is_token = is_token
        self._protocol = protocol
        self._timer = asyncio.get_running_loop().call_later(within_s, self._abort)

    def payload_received(self, payload: bytes) -> None:
        transport = self._transport
        assert transport is not None, "it is connected"
        self._timer.cancel()
        if not self._is_token(payload):
            transport.abort()
            return
        made = self._protocol()
        transport.set_protocol(made)
        made.connection_made(transport)
        transport.writelines(pieces(WELCOME, b""))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- nothing depends on it
        self._timer.cancel()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
