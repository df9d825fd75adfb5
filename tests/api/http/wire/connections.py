"""Tells whether a connection still serves."""

from tests.api.scripted import TOKEN
from tests.api.wire import Connection, request


async def good(connection: Connection) -> bool:
    """Return whether a connection still serves."""
    reply = await (await connection.send(request("GET", token=TOKEN))).receive()
    return reply.status == 200
