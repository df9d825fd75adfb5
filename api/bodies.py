"""Request bodies as they come over the wire, counted while they are read; and replies to what was read."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from api.envelope import Reply
from api.requests import too_large

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class CallerGone(Exception):
    """The caller closed the connection; nobody waits for a reply."""


async def read_body(receive: Receive, bytes_max: int) -> bytes:
    """Give the whole body, of at most `bytes_max` bytes.

    Raises RequestRefusal 1003 as soon as more has come; what is left of it is for `Drains`. Raises
    CallerGone where it never ends.
    """
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGone
        if chunk := message.get("body"):
            size += len(chunk)
            if size > bytes_max:
                raise too_large(bytes_max)
            chunks.append(chunk)
        more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


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
