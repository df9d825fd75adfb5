"""The broker as a front-end process reaches it, over a connection to the broker's process."""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from engine.runtime.broker.broker import Broker, Status, Tallies
from engine.runtime.contract.catalogue_changes import Changes, TokenEntry
from engine.runtime.contract.errors import OUTCOME_UNKNOWN, STARTING, ActorDied, DetectorUnavailable
from engine.runtime.contract.figures import ClusterFigures, FrontEndFigures
from engine.runtime.contract.routes import Route
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.link_server import Methods
from engine.runtime.transport.messages import Note

T = TypeVar("T")

_STATUS_S: Final = 5.0
_OUT_OF_REACH: Final = "the broker's process cannot be reached"
_SHUTTING_DOWN: Final = "the server is shutting down"


class RemoteBroker:
    """Forwards every call to the broker's process at the other end of a socket pair.

    `noted` is called with its notes, and `lost` when the connection ends. From then on every call raises
    DetectorUnavailable.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        end: socket.socket,
        noted: Callable[[Note], None],
        lost: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._end = end
        self._noted = noted
        self._when_lost = lost
        self._client: LinkClient | None = None
        self._why_unknown = _OUT_OF_REACH

    async def start(self) -> None:
        """Connect to the broker's process."""
        self._client = await LinkClient.over(self._end)
        self._client.noted, self._client.ended = self._noted, self._when_lost

    async def close(self) -> list[str]:
        """End the connection. The broker's process saves the detectors."""
        if self._client is not None:
            self._client.close()
        return []

    def refuse_all(self) -> None:
        """Refuse all pending requests. Their outcome in the broker's process is unknown here."""
        self._why_unknown = _SHUTTING_DOWN
        if self._client is not None:
            self._client.abandon()

    def note(self, name: str, body: bytes = b"") -> None:
        """Send a note to the process that started this front end."""
        self._connected().note(name, body)

    # -- asks ------------------------------------------------------------------------------------------------

    async def route(self, detector_id: str, left_epoch: int) -> Route:
        """Return where a detector is, once it is active. Raises Refusal 1200 and DetectorUnavailable."""
        try:
            return await self._connected().ask("route", Route, detector_id, left_epoch)
        except ActorDied:
            raise self._out_of_reach() from None

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Return the changes since those versions."""
        return await self._ask("changes", Changes, tokens_seen, detectors_seen)

    async def add_token(
        self, token_id: str, digest: bytes, hint: str, name: str = "", created_at_ms: int | None = None
    ) -> int:
        """Store a token; return the version of the tokens that includes it."""
        return await self._ask("add_token", int, token_id, digest, hint, name, created_at_ms)

    async def revoke_token(self, token_id: str) -> int:
        """Remove a token; return the version without it. Raises Refusal 1202."""
        return await self._ask("revoke_token", int, token_id)

    async def tokens(self) -> list[TokenEntry]:
        """Return all tokens, in order of creation."""
        return await self._ask("tokens", list[TokenEntry])

    async def tokens_used(self, token_ids: list[str], at_ms: int) -> None:
        """Note that tokens were used."""
        await self._ask("tokens_used", type(None), token_ids, at_ms)

    async def create_detector(self, detector_id: str, name: str) -> int:
        """Add a detector; return the catalogue's version that includes it. Raises Refusal 1400."""
        return await self._ask("create_detector", int, detector_id, name)

    async def delete_detector(self, detector_id: str) -> int:
        """Remove a detector; return the version without it. Raises Refusal 1200."""
        return await self._ask("delete_detector", int, detector_id)

    async def tally(self, counted: Tallies) -> None:
        """Add to the metrics of front ends."""
        await self._ask("tally", type(None), list(counted.items()))

    async def status(self) -> Status:
        """Return the broker's state. Raises DetectorUnavailable 1501 if it does not answer soon."""
        return await self._soon("status", Status)

    async def tell(self, figures: FrontEndFigures) -> None:
        """Take what a front end tells of itself."""
        await self._ask("tell", type(None), figures)

    async def cluster(self) -> ClusterFigures:
        """Return what runs where. Raises DetectorUnavailable 1501 if the broker does not answer soon."""
        return await self._soon("cluster", ClusterFigures)

    async def _soon(self, method: str, kind: type[T]) -> T:
        try:
            async with asyncio.timeout(_STATUS_S):
                return await self._ask(method, kind)
        except TimeoutError:
            said = "the broker's process does not answer"
            raise DetectorUnavailable(STARTING, said, self._settings.retry_s) from None

    async def _ask(self, method: str, kind: type[T], *arguments: object) -> T:
        client = self._connected()
        try:
            return await client.ask(method, kind, *arguments)
        except ActorDied:
            said = f"{self._why_unknown}; the outcome of the request is unknown"
            raise DetectorUnavailable(OUTCOME_UNKNOWN, said, self._settings.retry_s) from None

    def _connected(self) -> LinkClient:
        if self._client is None or not self._client.link.usable:
            raise self._out_of_reach()
        return self._client

    def _out_of_reach(self) -> DetectorUnavailable:
        return DetectorUnavailable(STARTING, _OUT_OF_REACH, self._settings.retry_s)


def methods_for_front_ends(broker: Broker, revoked: Callable[[], None]) -> Methods:
    """Return the methods that front-end processes ask for. `revoked` is called after a token was revoked."""

    async def revoke_token(token_id: str) -> int:
        version = await broker.revoke_token(token_id)
        revoked()
        return version

    async def tally(counted: list[tuple[list[str], float]]) -> None:
        await broker.tally({tuple(name): value for name, value in counted})

    async def tell(figures: object) -> None:
        await broker.tell(msgspec.convert(figures, FrontEndFigures))

    return {
        "route": broker.route,
        "changes": broker.changes,
        "add_token": broker.add_token,
        "revoke_token": revoke_token,
        "tokens": broker.tokens,
        "tokens_used": broker.tokens_used,
        "create_detector": broker.create_detector,
        "delete_detector": broker.delete_detector,
        "tally": tally,
        "status": broker.status,
        "tell": tell,
        "cluster": broker.cluster,
    }
