"""Connecting to a listening process: a greeting first, then the protocol of the connection."""

import asyncio
import hmac
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from engine.runtime.contract import build
from engine.runtime.contract.build import Protocols
from engine.runtime.contract.requests.calls import Address
from engine.runtime.transport.link import HEADER, PROTOCOLS, TOKEN, WELCOME, pieces
from engine.runtime.transport.tls import client_context

_CONNECT_S: Final = 5.0

P = TypeVar("P", bound=asyncio.BufferedProtocol)


class OtherProtocolError(ConnectionError):
    """The other process is of a release that does not speak any protocol of this one."""


async def connect(address: Address, protocol: Callable[[], P], *, within_s: float = _CONNECT_S) -> P:
    """Connect to a listener, and give the protocol of the connection, which is made once it is welcome.

    The protocol gets everything behind the welcome, even what arrives before this returns. Raises OSError, of
    which OtherProtocolError says that no later attempt can succeed.
    """
    loop = asyncio.get_running_loop()
    transport: asyncio.Transport | None = None

    def handshake() -> _WelcomeHandshake[P]:
        return _WelcomeHandshake(protocol)

    try:
        async with asyncio.timeout(within_s):
            if isinstance(address.place, str):
                transport, waiting = await loop.create_unix_connection(handshake, address.place)
            else:
                tls = client_context() if address.tls else None
                transport, waiting = await loop.create_connection(handshake, *address.place, ssl=tls)
            transport.writelines(pieces(TOKEN, address.token + PROTOCOLS.pack(*build.SPOKEN)))
            return await waiting.welcomed
    except BaseException:
        if transport is not None:
            transport.abort()
        raise


class _Handshake(asyncio.BufferedProtocol, ABC, Generic[P]):
    """Reads one frame of a known size, then continues with another protocol.

    It reads no byte behind the frame: the first messages may follow at once, and are for the other protocol.
    """

    def __init__(self, kind: int, payload_bytes: int, protocol: Callable[[], P]) -> None:
        self._header = HEADER.pack(payload_bytes, kind)
        self._frame = memoryview(bytearray(HEADER.size + payload_bytes))
        self._held = 0
        """The number of bytes in use, from the start of the frame."""
        self._protocol = protocol
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._frame[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        self._held += nbytes
        header = self._frame[: min(self._held, HEADER.size)]
        if header != self._header[: len(header)]:
            self._abort()
        elif self._held == len(self._frame):
            self.payload_received(bytes(self._frame[HEADER.size :]))

    @abstractmethod
    def payload_received(self, payload: bytes) -> None:
        """Take the frame's payload."""

    def _go_on(self) -> P:
        """Hand the connection over to the other protocol, and return that."""
        assert self._transport is not None, "it is connected"
        made = self._protocol()
        self._transport.set_protocol(made)
        made.connection_made(self._transport)
        return made

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _WelcomeHandshake(_Handshake[P]):
    """Waits for the welcome."""

    def __init__(self, protocol: Callable[[], P]) -> None:
        super().__init__(WELCOME, PROTOCOLS.size, protocol)
        self.welcomed: asyncio.Future[P] = asyncio.get_running_loop().create_future()
        """The protocol that the connection continues with."""

    def payload_received(self, payload: bytes) -> None:
        theirs = Protocols(*PROTOCOLS.unpack(payload))
        if self.welcomed.done():
            # Nobody waits for the connection any more.
            self._abort()
        elif not build.SPOKEN.meet(theirs):
            self.welcomed.set_exception(
                OtherProtocolError(
                    f"the other process speaks {theirs}, and this one, of rule-detector "
                    f"{build.build_version()}, speaks {build.SPOKEN}: their versions are too far apart"
                )
            )
            self._abort()
        else:
            self.welcomed.set_result(self._go_on())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.welcomed.done():
            self.welcomed.set_exception(ConnectionResetError(f"its connection ended: {exc or 'no welcome'}"))
            self.welcomed.exception()


class TokenHandshake(_Handshake[asyncio.BufferedProtocol]):
    """Waits for the token, which may be empty, then continues with another protocol.

    Ends a connection without the token, and one of a release that is too far from this one, which hears why.
    """

    def __init__(
        self, token: bytes, protocol: Callable[[], asyncio.BufferedProtocol], within_s: float
    ) -> None:
        super().__init__(TOKEN, len(token) + PROTOCOLS.size, protocol)
        self._token = token
        self._timer = asyncio.get_running_loop().call_later(within_s, self._abort)

    def payload_received(self, payload: bytes) -> None:
        self._timer.cancel()
        token_bytes = len(self._token)
        if not hmac.compare_digest(payload[:token_bytes], self._token):
            self._abort()
            return
        assert self._transport is not None, "it is connected"
        welcome = pieces(WELCOME, PROTOCOLS.pack(*build.SPOKEN))
        if not build.SPOKEN.meet(Protocols(*PROTOCOLS.unpack(payload[token_bytes:]))):
            self._transport.writelines(welcome)
            self._transport.close()
            return
        self._go_on()
        self._transport.writelines(welcome)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- nothing depends on it
        self._timer.cancel()
