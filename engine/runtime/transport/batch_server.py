"""The actor's end of the connection on which batches travel: a thread beside those of Ray."""

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
"""So long whoever asked for the address has to connect."""
_TOKEN_S: Final = 2.0
"""So long a connection has to say the token. Another one waits meanwhile."""


class BatchServer:
    """Answers batches on the one connection that proves itself, until that ends.

    There is one caller, the front end that started the actor. So once it has connected nothing listens any
    more: no file is left to be cleared away, and no port that others could try.
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
        """Listen at `host`, or with a Unix socket where there is none. Raises OSError.

        `handle` carries out an encoded batch and gives the encoded reply, `call` an encoded call of another
        method.
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
        # A process that ends waits for no caller.
        self.thread = threading.Thread(target=self._run, args=(listener,), name="batches", daemon=True)
        self.thread.start()

    def _unix(self) -> tuple[socket.socket, str]:
        assert self._folder is not None, "a Unix socket has a folder"
        path = str(self._folder.path / _SOCKET)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(path)
            # Nobody could reach it before: the folder is this user's alone.
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
        # However the connection ends, the front end learns of it by that.
        with connection, contextlib.suppress(OSError, Garbage):
            self._serve(connection)

    def _the_caller(self, listener: socket.socket) -> socket.socket | None:
        """Give the connection that said the token; None where the time is up."""
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
                # It was not the front end, or it is gone.
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
        except Exception as error:  # noqa: BLE001 -- whatever it is, the front end is to raise it
            return FAILURE, encode_failure(error)
        if len(reply) > FRAME_BYTES_MAX:
            # To end the connection says what there is to be said: the outcome will not be known.
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
    """Give so many bytes. Raises OSError where they do not come in time."""
    until_s = time.monotonic() + (connection.gettimeout() or 0)
    got = b""
    while len(got) < bytes_:
        # The time is for all of them: one that sends a byte now and then holds up nobody.
        connection.settimeout(max(until_s - time.monotonic(), 1e-3))
        piece = connection.recv(bytes_ - len(got))
        if not piece:
            raise ConnectionResetError("it ended before the token did")
        got += piece
    return got
