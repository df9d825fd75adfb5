"""Reading bodies within their limits, and sending whole responses."""

from typing import Final

from api.http.body.memory import Claim
from api.http.request.asgi import CallerGone, Message, Receive, Send
from api.http.request.head import too_large
from api.schema.envelope import Response

_PIECE_BYTES: Final = 4 * 1024
"""A piece of this size or more is kept as it arrived."""
_JOINED_BYTES: Final = 64 * 1024


async def read_body(receive: Receive, bytes_max: int, claim: Claim) -> bytes:
    """Return the whole body, of at most `bytes_max` bytes; `claim` accounts for its memory.

    Raises RequestRefusal 1003 as soon as more arrives, and 1401 if there is no memory for it: `BodyDiscard`
    reads the rest. Raises CallerGone if the connection ends first.
    """
    message = await receive()
    if message.get("more_body", False):
        return await read_rest(message, receive, bytes_max, claim)
    # Most bodies arrive in one piece, and need no claim because nothing more is awaited.
    body = part_of(message)
    _check_size(len(body), bytes_max)
    return body


async def read_rest(message: Message, receive: Receive, bytes_max: int, claim: Claim) -> bytes:
    """Return the whole body that begins with `message`, like `read_body`."""
    pieces = _Pieces()
    try:
        pieces.add(part_of(message))
        while message.get("more_body", False):
            _check_size(pieces.size_bytes, bytes_max)
            claim.hold(pieces.size_bytes)
            message = await receive()
            pieces.add(part_of(message))
        _check_size(pieces.size_bytes, bytes_max)
        claim.hold(pieces.size_bytes)
    except BaseException:
        # The traceback keeps this frame alive, but must not keep the body.
        pieces.clear()
        claim.release()
        raise
    claim.complete()
    return pieces.whole()


class _Pieces:
    """The pieces of a body. Small ones are joined, since an object takes more memory than its bytes."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._pieces: list[bytes | bytearray] = []

    def add(self, piece: bytes) -> None:
        """Append a piece."""
        self.size_bytes += len(piece)
        last = self._pieces[-1] if self._pieces else b""
        if len(piece) >= _PIECE_BYTES:
            self._pieces.append(piece)
        elif isinstance(last, bytearray) and len(last) < _JOINED_BYTES:
            last += piece
        else:
            self._pieces.append(bytearray(piece))

    def whole(self) -> bytes:
        """Return the body."""
        return b"".join(self._pieces)

    def clear(self) -> None:
        """Drop all of it."""
        self._pieces.clear()


def _check_size(size_bytes: int, bytes_max: int) -> None:
    if size_bytes > bytes_max:
        raise too_large(bytes_max)


def part_of(message: Message) -> bytes:
    """Return the part of a body in a message. Raises CallerGone."""
    if message["type"] == "http.disconnect":
        raise CallerGone
    part: bytes = message.get("body", b"")
    return part


async def skip_body(receive: Receive, bytes_max: int) -> None:
    """Read a body that is ignored to its end. Raises RequestRefusal 1003 past the limit, CallerGone."""
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
    await send({"type": "http.response.body", "body": response.body})
