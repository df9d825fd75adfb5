"""Request bodies as they come over the wire, counted while they are read; and replies to what was read."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from api.body_memory import Claim
from api.envelope import Reply
from api.requests import too_large

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class CallerGone(Exception):
    """The caller closed the connection; nobody waits for a reply."""


async def read_body(receive: Receive, bytes_max: int, claim: Claim) -> bytes:
    """Give the whole body, of at most `bytes_max` bytes, for which the claim holds the memory.

    Raises RequestRefusal 1003 as soon as more has come, and 1401 where there is no memory for it; what is
    left of it is for `Drains`. Raises CallerGone where it never ends.
    """
    message = await receive()
    body = _part(message)
    if not message.get("more_body", False):
        # It came in one piece, as most do, and is not read but has been.
        _check_size(body, bytes_max)
        return body
    # Many small pieces, each an object, would take more memory than is counted.
    buffer = bytearray(body)
    try:
        while message.get("more_body", False):
            _check_size(buffer, bytes_max)
            claim.hold(len(buffer))
            message = await receive()
            buffer += _part(message)
        _check_size(buffer, bytes_max)
        claim.hold(len(buffer))
    except BaseException:
        # Whoever keeps the error, or waits for the garbage collector to find it, does not keep the body.
        buffer.clear()
        claim.release()
        raise
    claim.complete()
    return bytes(buffer)


def _check_size(body: bytes | bytearray, bytes_max: int) -> None:
    if len(body) > bytes_max:
        raise too_large(bytes_max)


def _part(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise CallerGone
    part: bytes = message.get("body", b"")
    return part


async def skip_body(receive: Receive, bytes_max: int) -> None:
    """Read a body that nobody asked for to its end. Raises RequestRefusal 1003 past the bound."""
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGone
        size += len(message.get("body", b""))
        if size > bytes_max:
            raise too_large(bytes_max)
        more = message.get("more_body", False)


async def send_reply(reply: Reply, send: Send) -> None:
    """Send a reply to a request whose body has been read to its end."""
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.all_headers()})
    await send({"type": "http.response.body", "body": reply.body})
