"""Receives bodies that are sent with `Content-Encoding: gzip`, piece by piece as they become."""

import asyncio
import zlib
from typing import Final

from api.schema.envelope import RequestRefusal
from api.server.asgi import Message, Receive

GZIP: Final = b"gzip"
PIECE_BYTES: Final = 256 * 1024
"""The most that one piece becomes. The event loop turns between two of them."""
_WINDOW_BITS: Final = 31
"""Those of zlib for gzip."""


class Inflating:
    """Receives a body in pieces of what it becomes, which whoever reads them bounds.

    Raises RequestRefusal 1000 where it is not gzip. What follows is then received as nothing.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._inflater = zlib.decompressobj(_WINDOW_BITS)
        self._left = b""
        """What nothing has become of yet. Until all has, this is the end at least, with its checksum."""
        self._more = True
        self._over = False

    async def __call__(self) -> Message:
        """Receive the next piece, or that the connection has ended."""
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
        if self._inflater.eof and self._left:
            # Several files of gzip, one behind the other, are one.
            self._inflater = zlib.decompressobj(_WINDOW_BITS)
        try:
            piece = self._inflater.decompress(self._left, PIECE_BYTES)
        except zlib.error:
            self._over, self._left = True, b""
            raise _no_gzip("it is damaged") from None
        self._left = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
        return piece


def _no_gzip(reason: str) -> RequestRefusal:
    return RequestRefusal(1000, f"the body is not gzip: {reason}")
