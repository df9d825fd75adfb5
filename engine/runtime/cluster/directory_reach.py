"""How a service connects to the directory, and when it ends one that is unreachable, silent or hung."""

import asyncio
import errno
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from engine.runtime.cluster.ray_calls import RayActor
from engine.runtime.concurrency.background import cancel
from engine.runtime.concurrency.beats import Beats, answer_within
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.requests.calls import Address
from engine.runtime.front_end.scheduler_client import Unreachable
from engine.runtime.transport.connecting import OtherProtocolError, client_context
from engine.runtime.transport.link_client import LinkClient

_ANSWER_S: Final = 15.0
"""The timeout for the start of a directory, long enough for a busy machine."""
_PING_S: Final = 5.0
_OWN: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Errors caused by this service or its machine, not by the directory."""
_ATTEMPTS: Final = 3
"""The service gives up after this many consecutive attempts that failed because of itself."""


class Places(NamedTuple):
    """Where a directory listens: what `ServingActor.listen` returns."""

    pid: int
    address: Address
    beats: Address
    """Where a separate thread answers beats, however busy the directory is."""


class DirectoryReach:
    """Connects to the directory of a data folder, which other services may use too.

    It judges the directory by its answers to beats, so it must run in a loop that nothing else blocks.
    """

    def __init__(self, silent_s: float) -> None:
        """A directory that has answered before counts as dead after `silent_s` of silence."""
        self._silent_s = silent_s
        self._answered: tuple[Any, Places] | None = None
        """The actor and the places of the directory that answered last."""
        self._failed = 0

    async def connect(self, actor: RayActor, node: str) -> tuple[Places, LinkClient]:
        """Return where the directory listens, and a connection for beats, for a service on a node.

        Ends a directory that nobody can reach, and raises ActorDied: a later attempt may find its successor.
        A directory that only this service cannot reach is left alone: behind a firewall, or with another
        certificate, this service would end one directory after another. Raises ActorDied and Unreachable.
        """
        known = self._answered is not None and self._answered[0] == actor.actor
        try:
            places = await self._places(actor)
        except (OSError, ActorDied) as error:
            # Ray may take a minute to notice the loss of its node; until then the dead actor keeps the name.
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
            # It serves others. To skip releases in an upgrade, all services must be stopped first.
            raise Unreachable(f"the directory at {seen.place} cannot be used: {error}") from error
        except OSError as error:
            # A directory that closes the connection is alive; it does so if it rejects the certificate.
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
        """Return where the directory listens. Raises OSError, and ActorDied if the directory is dead."""
        if self._answered is not None and self._answered[0] == actor.actor:
            # Ray would wait for the answer of an actor that was lost with its node.
            return self._answered[1]
        async with asyncio.timeout(_ANSWER_S):
            return Places(*await actor.ask("listen"))

    def answered(self, actor: RayActor, places: Places) -> None:
        """Note that the directory has answered this service. Callable from any thread."""
        self._answered = actor.actor, places


def _check_certificates() -> None:
    """Raise Unreachable if this service's own certificates cannot be read."""
    try:
        client_context()
    except OSError as error:
        raise Unreachable(f"this service's certificates cannot be used: {error}") from error


async def _answers(actor: RayActor) -> bool:
    """Whether the directory answers Ray."""
    try:
        async with asyncio.timeout(_PING_S):
            await actor.ask("folder")
    except (ActorDied, TimeoutError):
        return False
    return True


def _away(error: Exception) -> ActorDied:
    return ActorDied(str(error) or "it does not answer")


_BEATS: Final = 12
"""Beats per timeout. The more there are, the sooner after the last answer the timeout begins."""
_SUSPECTED: Final = 1 / 3
"""After this share of the timeout without an answer, the next directory is prepared."""
_PATIENCE_MAX: Final = 8
"""The maximum timeout, as a multiple of the first, when several directories in a row are silent."""
_TRUSTED_BEATS: Final = 90
"""After this many answered beats, the timeout is reset to its first value."""
_TURNS: Final = 4
"""How many consecutive turns the event loop of a directory may leave unanswered."""


@dataclass(eq=False)
class DirectoryWatch:
    """Sends beats to one directory after another.

    Beats show that the process runs, however busy it is; turns show that its event loop makes progress.
    """

    _silent_s: float
    """How long a directory may leave beats, and turns below, unanswered before it counts as lost."""
    _hung_s: float
    _patience: int = 1

    async def until_lost(
        self, client: LinkClient, prepare: Callable[[], object], needed: Callable[[], bool] = lambda: True
    ) -> float | None:
        """Wait until a directory counts as lost; return how long it was silent.

        Returns None if the link has ended, or once the watch is no longer `needed`. `prepare` is called each
        time the directory is silent for a share of the timeout. The timeout doubles if the successor is
        silent too, because replacing directories costs a busy machine time.
        """
        watches = [
            asyncio.create_task(self._until_silent(client, prepare, needed)),
            asyncio.create_task(self._until_hung(client)),
        ]
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        except ActorDied:
            return None
        finally:
            await cancel(watches)

    async def _until_silent(
        self, client: LinkClient, prepare: Callable[[], object], needed: Callable[[], bool]
    ) -> float | None:
        beats, answered = Beats(), 0

        def counted() -> None:
            nonlocal answered
            if not beats.missed:
                answered += 1
                if answered == _TRUSTED_BEATS:
                    self._patience = 1
            elif beats.missed == _BEATS * self._patience * _SUSPECTED:
                prepare()

        def lost() -> bool:
            return beats.missed >= _BEATS * self._patience

        async def beat() -> None:
            await client.ask_until_answered("beat", int)

        await beats.count(beat, self._silent_s / _BEATS, lambda: lost() or not needed(), counted)
        if not lost():
            return None
        silent_s = self._silent_s * self._patience
        self._patience = min(2 * self._patience, _PATIENCE_MAX)
        return silent_s

    async def _until_hung(self, client: LinkClient) -> float:
        turns = Beats()

        async def turn() -> None:
            await client.ask_until_answered("turn", int)

        await turns.count(turn, self._hung_s / _TURNS, lambda: turns.missed >= _TURNS)
        return self._hung_s
