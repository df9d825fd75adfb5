"""The types of ASGI, and the exception for a closed connection."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Scope = Mapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]


class CallerGone(BaseException):
    """The caller closed the connection, so nobody waits for a response.

    No handler of errors is to answer it, so it is no Exception.
    """


async def until_gone(receive: Receive) -> None:
    """Return when the caller has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
