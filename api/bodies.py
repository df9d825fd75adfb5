"""Request bodies as they come over the wire: counted while they are read, drained where they are refused."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from api.envelope import Reply, RequestRefusal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_DRAIN_S: Final = 10.0
"""How long a refused body may take to arrive before the connection is closed instead."""


class CallerGone(Exception):
    """The caller closed the connection; nobody waits for a reply."""


async def read_body(receive: Receive, bytes_max: int, declared: int | None) -> bytes:
    """Give the whole body, of at most `bytes_max` bytes.

    Raises RequestRefusal 1003 as soon as it is known to be larger, whether by the `declared` length or by
    what has come; what is left of it is for `send_and_drain`. Raises CallerGone where it never ends.
    """
    if declared is not None and declared > bytes_max:
        raise _too_large(bytes_max)
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
                raise _too_large(bytes_max)
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
            raise _too_large(bytes_max)
        more = message.get("more_body", False)


def _too_large(bytes_max: int) -> RequestRefusal:
    return RequestRefusal(1003, f"the body is larger than {bytes_max} bytes")


async def send_reply(reply: Reply, send: Send) -> None:
    """Send a reply to a request whose body has been read to its end."""
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.all_headers()})
    await send({"type": "http.response.body", "body": reply.body})


async def send_and_drain(reply: Reply, receive: Receive, send: Send, bytes_max: int) -> None:
    """Send a reply to a request whose body may still be coming, and read on so that the caller can read it.

    The server holds a few chunks of a body and then stops reading, and it frees the connection only after it
    has told us of its end, for which there must be room: whoever answers without reading hangs there for
    ever. The reply is on its way before the body is drained. Past `bytes_max` bytes or some seconds the
    connection is closed instead.
    """
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.all_headers()})
    await send({"type": "http.response.body", "body": reply.body, "more_body": True})
    await drain_and_end(receive, send, bytes_max)


async def drain_and_end(receive: Receive, send: Send, bytes_max: int) -> None:
    """End a reply that has been sent, once the body that it answers has been read past."""
    drained = await _drained(receive, bytes_max)
    reading_on = None if drained else asyncio.ensure_future(_drained(receive, None))
    try:
        await send({"type": "http.response.body", "body": b""})
    finally:
        if reading_on is not None:
            reading_on.cancel()
            await asyncio.wait([reading_on])


async def _drained(receive: Receive, bytes_max: int | None) -> bool:
    """Read to the end of the body or of the connection; tell whether that came within the bounds."""
    size = 0
    try:
        async with asyncio.timeout(None if bytes_max is None else _DRAIN_S):
            while bytes_max is None or size <= bytes_max:
                message = await receive()
                size += len(message.get("body", b""))
                # The end of the connection has no more of a body either.
                if not message.get("more_body", False):
                    return True
    except TimeoutError:
        pass
    return False
