"""Tokens that may do less than everything, as tests make them."""

from collections.abc import Awaitable, Callable

from tests.api.caller import Caller

Made = Callable[..., Awaitable[str]]


async def token(caller: Caller, **bounds: object) -> str:
    """Create a token with the caller's, and return its secret."""
    return str((await caller("POST", "/api/tokens", {"name": "bounded", **bounds})).result["token"])


async def with_token(caller: Caller, **bounds: object) -> Caller:
    """Return a caller with a new token, at the same front end."""
    return caller.other(await token(caller, **bounds))
