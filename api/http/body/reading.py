"""Reading bodies within their limits, and sending whole responses."""

import io

from api.http.body.memory import Reservation
from api.http.request.head import too_large
from api.schema.envelope import Response
from api.server.asgi import CallerGone, Message, Receive, Send


async def read_body(receive: Receive, bytes_max: int, reservation: Reservation) -> bytes:
    """Return the whole body, of at most `bytes_max` bytes; `reservation` accounts for its memory.

    Raises RequestRefusal 1003 as soon as more arrives, and 1401 if there is no memory for it: `BodyDiscard`
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
        # The traceback keeps this frame alive, but must not keep the body.
        body.close()
        reservation.release()
        raise
    reservation.complete()
    return body.getvalue()


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
    for piece in response.pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
