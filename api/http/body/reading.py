"""Reads bodies, also compressed ones, within their limits, and sends whole responses."""

import asyncio
import io
import zlib
from typing import Final

from api.http.body.memory import Reservation
from api.http.request.head import too_large
from api.schema.envelope import RequestRefusal, Response
from api.server.exchange import Message, Receive, Send, part_of


async def read_body(receive: Receive, bytes_max: int, reservation: Reservation) -> bytes:
    """Return the whole body, of at most `bytes_max` bytes; `reservation` accounts for its memory.

    Raises RequestRefusal 1003 as soon as more arrives, and 1401 if there is no memory for it; the connection
    reads the rest. Raises CallerGone if the connection ends first.
    """
    return await read_rest(await receive(), receive, bytes_max, reservation)


async def read_rest(message: Message, receive: Receive, bytes_max: int, reservation: Reservation) -> bytes:
    """Return the whole body that begins with `message`, like `read_body`."""
    body = io.BytesIO()
    try:
        body.write(part_of(message))
        while message.get("more_body", False):
            _check_size(body.tell(), bytes_max)
            reservation.hold(body.tell())
            message = await receive()
            body.write(part_of(message))
        _check_size(body.tell(), bytes_max)
        reservation.hold(body.tell())
    except BaseException:
        # The traceback keeps this frame alive, and must not keep the body.
        body.close()
        reservation.release()
        raise
    reservation.complete()
    return body.getvalue()


def _check_size(size_bytes: int, bytes_max: int) -> None:
    if size_bytes > bytes_max:
        raise too_large(bytes_max)


async def skip_body(receive: Receive, bytes_max: int) -> None:
    """Read and ignore a body. Raises RequestRefusal 1003 beyond the limit, and CallerGone."""
    size_bytes = 0
    more = True
    while more:
        message = await receive()
        size_bytes += len(part_of(message))
        _check_size(size_bytes, bytes_max)
        more = message.get("more_body", False)


async def send_response(response: Response, send: Send) -> None:
    """Send a response to a request whose body has been read."""
    await send({"type": "http.response.start", "status": response.status, "headers": response.all_headers()})
    for piece in response.pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


GZIP: Final = b"gzip"
PIECE_BYTES: Final = 256 * 1024
"""The maximum size of an inflated piece. The event loop runs between two pieces."""
MEMBERS_MAX: Final = 1_000
"""The maximum number of gzip members in a piece. They are as small as 20 bytes, so a body can have many."""
_INPUT_BYTES: Final = 8 * 1024
"""How much zlib gets at once, because it copies what it leaves."""
_WINDOW_BITS: Final = 31
"""The window bits with which zlib reads gzip."""


class Inflating:
    """Receives a gzip body in inflated pieces, whose total size the reader must limit.

    Raises RequestRefusal 1000 where the body is not gzip; the rest is then received as empty.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._inflater = zlib.decompressobj(_WINDOW_BITS)
        self._left = b""
        """The compressed bytes left. They include the checksum at the end until everything is inflated."""
        self._more = True
        self._over = False

    async def __call__(self) -> Message:
        """Receive the next piece, or the end of the connection."""
        if self._over:
            message = await self._receive()
            return message if message["type"] == "http.disconnect" else {**message, "body": b""}
        if self._left:
            await asyncio.sleep(0)
        elif self._more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return message
            self._left, self._more = message.get("body", b""), message.get("more_body", False)
        piece = self._inflated()
        self._over = not (self._left or self._more)
        if self._over and not self._inflater.eof:
            raise _no_gzip("it ends early")
        return {"type": "http.request", "body": piece, "more_body": not self._over}

    def _inflated(self) -> bytes:
        """Return a piece of one member or of several: small members cost much less together."""
        piece = bytearray()
        left = memoryview(self._left)
        for _ in range(MEMBERS_MAX):
            if self._inflater.eof and left:
                # Concatenated gzip files are one file.
                self._inflater = zlib.decompressobj(_WINDOW_BITS)
            fed = left[:_INPUT_BYTES]
            try:
                piece += self._inflater.decompress(fed, PIECE_BYTES - len(piece))
            except zlib.error:
                self._over, self._left = True, b""
                raise _no_gzip("it is damaged") from None
            kept = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
            left = left[len(fed) - len(kept) :]
            if not left or len(piece) == PIECE_BYTES:
                break
        self._left = bytes(left)
        return bytes(piece)


def _no_gzip(reason: str) -> RequestRefusal:
    return RequestRefusal(1000, f"the body is not gzip: {reason}")
