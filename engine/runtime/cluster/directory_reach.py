"""How a service reaches the directory, and when it ends one that it cannot reach."""

import asyncio
import errno
import ssl
from typing import Any, Final, NamedTuple

from engine.runtime.cluster.ray_calls import RayActor
from engine.runtime.concurrency.beats import answer_within
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.requests.calls import Address
from engine.runtime.front_end.scheduler_client import Unreachable
from engine.runtime.transport import tls
from engine.runtime.transport.connecting import OtherProtocolError
from engine.runtime.transport.link_client import LinkClient

_ANSWER_S: Final = 15.0
"""How long a directory may take to start, on a busy machine too."""
_PING_S: Final = 5.0
_OWN: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Errors that are about this service or its machine, not about the directory."""
_ATTEMPTS: Final = 3
"""After this many attempts in a row that fail because of this service alone, it gives up."""


class Places(NamedTuple):
    """Where a directory listens."""

    address: Address
    beats: Address
    """Where a thread of its own answers beats, however busy the directory is."""


class DirectoryReach:
    """Connects to the directory of a data folder, which other services may be using.

    It judges the directory by its answers to beats, so it belongs on a loop that nothing else holds up.
    """

    def __init__(self, silent_s: float) -> None:
        """A directory that has answered before counts as dead after `silent_s` without an answer."""
        self._silent_s = silent_s
        self._answered: tuple[Any, Places] | None = None
        """The actor and the places of the directory that has last answered here."""
        self._failed = 0

    async def connect(self, actor: RayActor, node: str) -> tuple[Places, LinkClient]:
        """Return where the directory listens, and a connection for beats, for a service on a node.

        A directory that nobody can reach is ended, and ActorDied says that there may be another one soon. One
        that only this service cannot reach goes on for the others: behind a firewall, or with another
        certificate, this service would end one directory after the other. Raises ActorDied and Unreachable.
        """
        known = self._answered is not None and self._answered[0] == actor.actor
        try:
            places = await self._places(actor)
        except (OSError, ActorDied) as error:
            # Ray may take a minute to notice that it was lost with its node; until then it has the name.
            await actor.end()
            raise _away(error) from error
        seen = places.beats.seen_from(node)
        try:
            if seen.tls:
                _check_certificates()
            connecting = LinkClient.to(seen)
            client = await (answer_within(connecting, self._silent_s) if known else connecting)
        except ssl.SSLError as error:
            raise Unreachable(
                f"the certificates of this service and the directory at {seen.place} do not fit: {error}"
            ) from error
        except OtherProtocolError as error:
            # It serves others. An upgrade that skips releases begins with stopping all services.
            raise Unreachable(f"the directory at {seen.place} cannot be used: {error}") from error
        except OSError as error:
            # A directory that ends the connection is alive. It does so if it does not know the certificate.
            rejected = seen.tls and isinstance(error, ConnectionResetError)
            lost = (known and not rejected) or not await _answers(actor)
            if lost and error.errno not in _OWN:
                await actor.end()
                raise _away(error) from error
            self._failed += 1
            hint = " (perhaps it does not accept this service's certificate)" if rejected else ""
            why = f"{str(error) or 'no answer'}{hint}"
            message = f"this service cannot connect to the directory at {seen.place}: {why}"
            if self._failed < _ATTEMPTS:
                raise ActorDied(message) from error
            self._failed = 0
            raise Unreachable(message) from error
        self._failed = 0
        return places, client

    async def _places(self, actor: RayActor) -> Places:
        """Return where the directory listens. Raises OSError, and ActorDied if it is dead."""
        if self._answered is not None and self._answered[0] == actor.actor:
            # Ray would wait for the answer of one that was lost with its node.
            return self._answered[1]
        async with asyncio.timeout(_ANSWER_S):
            _, beats = await actor.ask("listen_for_beats")
            return Places(await actor.ask("listen"), beats)

    def answered(self, actor: RayActor, places: Places) -> None:
        """Note that the directory has answered this service. Callable from any thread."""
        self._answered = actor.actor, places


def _check_certificates() -> None:
    """Raise Unreachable if this service's own certificates cannot be read."""
    try:
        tls.client_context()
    except OSError as error:
        raise Unreachable(f"this service's certificates cannot be used: {error}") from error


async def _answers(actor: RayActor) -> bool:
    """Whether the directory answers Ray."""
    try:
        async with asyncio.timeout(_PING_S):
            await actor.ask("pid")
    except (ActorDied, TimeoutError):
        return False
    return True


def _away(error: Exception) -> ActorDied:
    return ActorDied(f"it cannot be reached: {str(error) or 'it does not answer'}")
