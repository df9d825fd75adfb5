"""The worker's end of the connection that carries batches: a thread beside Ray's."""

import contextlib
import hmac
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from engine.runtime.contract.failures import encode_failure
from engine.runtime.process.temporary import TemporaryFolder
from engine.runtime.transport.frames import (
    BATCH,
    CALL,
    FAILURE,
    FRAME_BYTES_MAX,
    REPLY,
    TOKEN_BYTES,
    WELCOME,
    Address,
    Frame,
    FrameReader,
    Garbage,
    Payload,
    pieces,
)

_PREFIX: Final = "rd-actor-"
_SOCKET: Final = "batches"
_SOCKET_MODE: Final = 0o600
_WAITING_MAX: Final = 8
_LISTEN_S: Final = 10.0
"""How long the caller has to connect after it has asked for the address."""
_TOKEN_S: Final = 2.0
"""How long a connection has to send the token. Other connections wait meanwhile."""


class BatchServer:
    """Serves batches on the one connection that sends the token, until it ends.

    There is one caller, the process that started the worker. Once it has connected, the listener is closed:
    no socket file is left behind, and no port is open to others.
    """

    def __init__(
        self,
        handle: Callable[[Payload], bytes],
        call: Callable[[Payload], bytes] | None = None,
        *,
        host: str | None = None,
        listen_s: float = _LISTEN_S,
        token_s: float = _TOKEN_S,
    ) -> None:
        """Listen on TCP at `host`, or on a Unix socket if it is None. Raises OSError.

        `handle` executes an encoded batch and returns the encoded reply; `call` does so for another method.
        """
        self._handlers = {BATCH: handle} if call is None else {BATCH: handle, CALL: call}
        self._until_s = time.monotonic() + listen_s
        self._token_s = token_s
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._folder = TemporaryFolder(_PREFIX, frozenset({_SOCKET})) if host is None else None
        try:
            listener, place = _tcp(host) if host is not None else self._unix()
            self.address = Address(place, self._token)
        except BaseException:
            self._remove_folder()
            raise
        # A daemon thread, so that it does not keep the process alive.
        self.thread = threading.Thread(target=self._run, args=(listener,), name="batches", daemon=True)
        self.thread.start()

    def _unix(self) -> tuple[socket.socket, str]:
        assert self._folder is not None, "a Unix socket has a folder"
        path = str(self._folder.path / _SOCKET)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(path)
            # Nobody could connect before: the folder is private to the user.
            os.chmod(path, _SOCKET_MODE)  # noqa: PTH101 -- a path here is what sockets take, a string
            listener.listen(_WAITING_MAX)
        except BaseException:
            listener.close()
            raise
        return listener, path

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.remove()

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self, listener: socket.socket) -> None:
        try:
            with listener:
                connection = self._the_caller(listener)
        finally:
            self._remove_folder()
        if connection is None:
            return
        # The caller notices the end of the connection, whatever the reason.
        with connection, contextlib.suppress(OSError, Garbage):
            self._serve(connection)

    def _the_caller(self, listener: socket.socket) -> socket.socket | None:
        """Return the connection that sent the token; None after the time to connect is over."""
        while (left_s := self._until_s - time.monotonic()) > 0:
            listener.settimeout(left_s)
            try:
                connection, _ = listener.accept()
            except OSError:
                continue
            try:
                connection.settimeout(self._token_s)
                if hmac.compare_digest(_read(connection, TOKEN_BYTES), self._token):
                    if connection.family != socket.AF_UNIX:
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    connection.settimeout(None)
                    _send(connection, (WELCOME, b""))
                    return connection
            except OSError:
                # It was not the caller, or the caller is gone.
                pass
            connection.close()
        return None

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader()
        while count := connection.recv_into(reader.room()):
            for kind, payload in reader.received(count):
                if kind not in self._handlers:
                    raise Garbage(f"a frame of kind {kind}")
                _send(connection, self._answer(kind, payload))

    def _answer(self, kind: int, payload: Payload) -> Frame:
        try:
            reply = self._handlers[kind](payload)
        except Exception as error:  # noqa: BLE001 -- the caller raises it
            return FAILURE, encode_failure(error)
        if len(reply) > FRAME_BYTES_MAX:
            # Ending the connection tells the caller that the outcome is unknown.
            raise Garbage(f"a reply of {len(reply)} bytes")
        return REPLY, reply


def _tcp(host: str) -> tuple[socket.socket, tuple[str, int]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, 0), family=family, backlog=_WAITING_MAX)
    return listener, (host, listener.getsockname()[1])


def _send(connection: socket.socket, frame: Frame) -> None:
    for piece in pieces(*frame):
        connection.sendall(piece)


def _read(connection: socket.socket, bytes_: int) -> bytes:
    """Read a number of bytes. Raises OSError if they do not arrive in time."""
    until_s = time.monotonic() + (connection.gettimeout() or 0)
    got = b""
    while len(got) < bytes_:
        # The timeout is for all bytes, so that a slow sender cannot prolong it.
        connection.settimeout(max(until_s - time.monotonic(), 1e-3))
        piece = connection.recv(bytes_ - len(got))
        if not piece:
            raise ConnectionResetError("it ended before the token did")
        got += piece
    return got
