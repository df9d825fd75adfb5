"""Listening, and connecting to a listening process: a greeting first, then a link.

If Ray uses TLS between machines, connections are encrypted with Ray's certificates.
"""

import asyncio
import hmac
import os
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self, TypeVar, cast

from engine.runtime.concurrency.background import Background
from engine.runtime.contract import build
from engine.runtime.contract.build import Protocols
from engine.runtime.contract.requests.calls import Address
from engine.runtime.process.temporary import TemporaryFolder
from engine.runtime.transport.link import HEADER, PROTOCOLS, TOKEN, WELCOME, Link, pieces

_CONNECT_S: Final = 5.0

P = TypeVar("P", bound=asyncio.BufferedProtocol)


class OtherProtocolError(ConnectionError):
    """The other process speaks no protocol that this one speaks."""


async def connect(address: Address, protocol: Callable[[], P], *, within_s: float = _CONNECT_S) -> P:
    """Connect to a listener, and return the connection's protocol, which is made after the greeting.

    The protocol receives everything after the greeting. Raises OSError; after OtherProtocolError, no retry
    can succeed.
    """
    loop = asyncio.get_running_loop()
    greeting = _Greeting(WELCOME, PROTOCOLS.size)
    try:
        async with asyncio.timeout(within_s):
            if isinstance(address.place, str):
                transport, _ = await loop.create_unix_connection(lambda: greeting, address.place)
            else:
                tls = client_context() if address.tls else None
                transport, _ = await loop.create_connection(lambda: greeting, *address.place, ssl=tls)
            transport.writelines(pieces(TOKEN, address.token + _spoken()))
            theirs = Protocols(*PROTOCOLS.unpack(await greeting.payload))
        if not build.SPOKEN.meet(theirs):
            raise OtherProtocolError(  # noqa: TRY301 -- as what `connect` raises itself
                f"the other process speaks {theirs}, and this one, of rule-detector "
                f"{build.build_version()}, speaks {build.SPOKEN}: their versions are too far apart"
            )
        return greeting.go_on(protocol())
    except BaseException:
        greeting.abort()
        raise


async def _admit(greeting: "_Greeting", token: bytes, link: Callable[[], Link], within_s: float) -> None:
    """Give a new connection a link once it has sent the right token, which may be empty; else end it.

    A process without a common protocol receives the protocols spoken here before the end.
    """
    try:
        async with asyncio.timeout(within_s):
            payload = await greeting.payload
        transport = greeting.transport
        if transport is None or not hmac.compare_digest(payload[: len(token)], token):
            greeting.abort()
            return
        transport.writelines(pieces(WELCOME, _spoken()))
        if build.SPOKEN.meet(Protocols(*PROTOCOLS.unpack(payload[len(token) :]))):
            greeting.go_on(link())
        else:
            transport.close()
    except OSError:
        greeting.abort()


def _spoken() -> bytes:
    return PROTOCOLS.pack(*build.SPOKEN)


class _Greeting(asyncio.BufferedProtocol):
    """Receives one frame of a known kind and size, and then hands the connection over to another protocol.

    It reads no byte beyond the frame, because messages for the other protocol may follow at once.
    """

    def __init__(self, kind: int, payload_bytes: int) -> None:
        self._header = HEADER.pack(payload_bytes, kind)
        self._frame = memoryview(bytearray(HEADER.size + payload_bytes))
        self._held = 0
        """The number of bytes in use, from the start of the frame."""
        self.payload: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        """The frame's payload. Raises ConnectionResetError if the connection ends before it arrives."""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._frame[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        self._held += nbytes
        header = self._frame[: min(self._held, HEADER.size)]
        if header != self._header[: len(header)] or self.payload.done():
            self.abort()
        elif self._held == len(self._frame) and self.transport is not None:
            self.transport.pause_reading()
            self.payload.set_result(bytes(self._frame[HEADER.size :]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if not self.payload.done():
            self.payload.set_exception(ConnectionResetError(f"its connection ended: {exc or 'no welcome'}"))
            self.payload.exception()

    def go_on(self, protocol: P) -> P:
        """Hand the connection over to another protocol. Raises ConnectionResetError if it has ended."""
        if self.transport is None:
            raise ConnectionResetError("its connection ended")
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.transport.resume_reading()
        return protocol

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


_NO: Final = ("", "0", "false")
_CERTIFICATE: Final = "RAY_TLS_SERVER_CERT"
_KEY: Final = "RAY_TLS_SERVER_KEY"
_AUTHORITY: Final = "RAY_TLS_CA_CERT"

TLS_VARIABLES: Final = frozenset({"RAY_USE_TLS", _CERTIFICATE, _KEY, _AUTHORITY})


def tls_required(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether Ray encrypts its traffic; the service then does so too between machines."""
    return environment.get("RAY_USE_TLS", "").lower() not in _NO


def server_context(environment: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """Return the TLS context of a listener, which demands client certificates. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    return _with_certificates(context, environment)


def client_context(environment: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """Return the TLS context of a connecting process. Raises OSError.

    Nodes come and go by address, so host names are not checked, only that the cluster's authority has signed
    the certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return _with_certificates(context, environment)


def _with_certificates(context: ssl.SSLContext, environment: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context.load_cert_chain(environment[_CERTIFICATE], environment[_KEY])
        context.load_verify_locations(environment[_AUTHORITY])
    except KeyError as error:
        raise OSError(f"RAY_USE_TLS is set, and {error.args[0]} is not") from None
    return context


_PREFIX: Final = "rd-actor-"
_SOCKET: Final = "batches"
_SOCKET_MODE: Final = 0o600
_WAITING_MAX: Final = 128
_TOKEN_BYTES: Final = 32
_TOKEN_S: Final = 2.0
"""How long a connection has to send the token."""


@dataclass(eq=False)
class Listener:
    """Accepts connections, and gives each one that sends the token a link."""

    address: Address
    _server: asyncio.Server
    _folder: TemporaryFolder | None

    @classmethod
    async def start(
        cls,
        link: Callable[[], Link],
        *,
        host: str | None = None,
        tls: bool = False,
        token_s: float = _TOKEN_S,
    ) -> Self:
        """Listen on TCP at `host`, or on a Unix socket if it is None. Raises OSError.

        A Unix socket needs no token: only the user and root can reach it, because its folder has mode 0700.
        """
        token = b"" if host is None else secrets.token_bytes(_TOKEN_BYTES)

        arrivals, loop = Background(), asyncio.get_running_loop()

        def protocol() -> _Greeting:
            greeting = _Greeting(TOKEN, len(token) + PROTOCOLS.size)
            arrivals.begin(_admit(greeting, token, link, token_s))
            return greeting

        if host is not None:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, 0), family=family, backlog=_WAITING_MAX)
            context = server_context() if tls else None
            server = await loop.create_server(protocol, sock=listening, ssl=context)
            return cls(Address((host, listening.getsockname()[1]), token, tls), server, None)
        folder = TemporaryFolder(_PREFIX, frozenset({_SOCKET}))
        try:
            path = str(folder.path / _SOCKET)
            server = await loop.create_unix_server(protocol, path, backlog=_WAITING_MAX)
            os.chmod(path, _SOCKET_MODE)  # noqa: PTH101 -- a path here is what sockets take, a string
        except BaseException:
            folder.remove()
            raise
        return cls(Address(path), server, folder)

    def close(self) -> None:
        """Accept no more connections."""
        self._server.close()
        if self._folder is not None:
            self._folder.remove()
