"""The scheduler as other processes reach it: what they call, and what its process serves them."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from engine.language.diagnostics import Refusal
from engine.runtime.contract.catalogue_changes import Changes, StoredToken, TokenEntry
from engine.runtime.contract.errors import ActorDied, DetectorUnavailable
from engine.runtime.contract.measurements.figures import ClusterFigures, FrontEndFigures, NodeFigures
from engine.runtime.contract.measurements.status import Counts, Status
from engine.runtime.contract.requests.routes import Route
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.scheduler_connection import Connect, SchedulerConnection, Unreachable
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.messages import Note
from engine.runtime.transport.server_connection import Methods
from snapshots.errors import StorageError

_LEAVE_S: Final = 10.0
"""How long connecting may take when the service leaves."""

_SAME_METHODS: Final = (
    *("route", "changes", "tokens", "tokens_used", "revoke_token"),
    *("create_detector", "fork_detector", "delete_detector"),
    *("move", "drain", "status", "cluster"),
)
"""The methods of the scheduler that other processes call as they are."""

ABANDONABLE: Final = frozenset({"route"})
"""The methods that end if their caller is gone: a detector is activated only for those that wait for it."""


class SchedulerClient:
    """Forwards every call to the scheduler's process.

    A call during which that process is lost is repeated. Each may raise DetectorUnavailable.

    Repeating is safe: the caller chooses the id of what it creates, and what is gone when a removal is
    repeated was removed by the first attempt. `noted` is called with the scheduler's notes, and `lost` when a
    connection ends. `not_ready` returns why this process cannot serve, and `problem` what is wrong while
    active detectors are still served; None if nothing is. With `end`, this is the client of a whole service:
    when it closes, it leaves the scheduler's process, and `end` ends that process if it was the last service.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        connect: Connect,
        *,
        noted: Callable[[Note], None] = lambda _: None,
        lost: Callable[[], None] = lambda: None,
        not_ready: Callable[[], str | None] = lambda: None,
        problem: Callable[[], str | None] = lambda: None,
        end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._settings = settings
        self._connection = SchedulerConnection(settings, connect, noted, lost)
        self._not_ready = not_ready
        self._problem = problem
        self._end = end
        self._last: Status | None = None
        """The last status that the scheduler returned."""
        self._unsent: dict[tuple[str, ...], float] = {}

    async def start(self) -> None:
        """Connect to the scheduler's process. Raises StorageError and DetectorUnavailable."""
        await self._connection.start()

    async def close(self) -> list[str]:
        """End the connection. The scheduler goes on for others, if there are any.

        Returns a sentence for each detector that could not be saved.
        """
        unsaved = [] if self._end is None else await self._leave(self._end)
        await self._connection.close()
        return unsaved

    def refuse_all(self) -> None:
        """Refuse all pending and future requests. The outcome of pending changes is unknown."""
        self._connection.refuse_all()

    def note(self, name: str, body: bytes = b"") -> None:
        """Send a note to the scheduler's process, if it can be reached."""
        self._connection.note(name, body)

    # -- asks ------------------------------------------------------------------------------------------------

    async def route(self, detector_id: str, left_epoch: int, large: bool = False) -> Route:
        """Return a detector's route, once it is active. Raises Refusal 1200.

        `left_epoch` is the epoch of an activation that the caller found over or out of reach; 0 for none.
        `large` says whether large requests wait for the detector.
        """
        return await self._connection.ask("route", Route, detector_id, left_epoch, large, harmless=True)

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Return the changes since those versions."""
        return await self._connection.ask("changes", Changes, tokens_seen, detectors_seen, harmless=True)

    async def add_token(self, token_id: str, token: StoredToken) -> int:
        """Store a token; return the version of the tokens that includes it."""
        return await self._connection.ask("add_token", int, token_id, token)

    async def revoke_token(self, token_id: str) -> int:
        """Remove a token; return the version without it. Raises Refusal 1202."""
        return await self._remove("revoke_token", token_id)

    async def tokens(self) -> list[TokenEntry]:
        return await self._connection.ask("tokens", list[TokenEntry], harmless=True)

    async def tokens_used(self, token_ids: list[str], at_ms: int) -> None:
        await self._connection.ask("tokens_used", type(None), token_ids, at_ms, harmless=True)

    async def create_detector(self, detector_id: str, name: str) -> int:
        """Add a detector; return the catalogue's version that includes it. Raises Refusal 1400."""
        return await self._connection.ask("create_detector", int, detector_id, name)

    async def fork_detector(self, source_id: str, detector_id: str, name: str) -> int:
        """Add a detector with the rules and the state of another one; return the catalogue's version.

        Raises Refusal 1200 and 1400.
        """
        return await self._connection.ask("fork_detector", int, source_id, detector_id, name)

    async def delete_detector(self, detector_id: str) -> int:
        """Remove a detector; return the version without it. Raises Refusal 1200."""
        return await self._remove("delete_detector", detector_id)

    async def move(self, detector_id: str, node: str) -> Route:
        """Move a detector to a node, or with an empty one to any but its own; return its route.

        Raises Refusal 1200 and 1204. Repeating it does no harm: the detector is there already.
        """
        return await self._connection.ask("move", Route, detector_id, node, harmless=True)

    async def drain(self, node: str, draining: bool) -> NodeFigures:
        """Start draining a node, which moves its detectors elsewhere, or stop. Raises Refusal 1204."""
        return await self._connection.ask("drain", NodeFigures, node, draining, harmless=True)

    async def add_counts(self, counted: Counts) -> None:
        """Add to the metrics of front ends. What cannot be sent now is sent with the next call."""
        self._add_unsent(counted)
        sent, self._unsent = self._unsent, {}
        try:
            await self._connection.ask_soon("add_counts", type(None), list(sent.items()))
        except DetectorUnavailable:
            self._add_unsent(sent)
            raise

    async def status(self) -> Status:
        """Return the scheduler's state; while it is out of reach, its last state with that problem added.

        Raises DetectorUnavailable 1501 if none is known.
        """
        try:
            status = self._last = await self._connection.ask_soon("status", Status)
        except DetectorUnavailable as error:
            if self._last is None or self._connection.refused():
                raise
            status = msgspec.structs.replace(self._last, problems=[*self._last.problems, error.message])
        if (not_ready := self._not_ready()) is not None:
            status = msgspec.structs.replace(status, reasons=[*status.reasons, not_ready])
        if (problem := self._problem()) is not None:
            status = msgspec.structs.replace(status, problems=[*status.problems, problem])
        return status

    async def report_figures(self, figures: FrontEndFigures) -> None:
        """Record the figures of a front end. Raises DetectorUnavailable 1501 if that takes too long."""
        await self._connection.ask_soon("report_figures", type(None), figures)

    async def cluster(self) -> ClusterFigures:
        """Return what runs where. Raises DetectorUnavailable 1501 if the scheduler does not answer soon."""
        return await self._connection.ask_soon("cluster", ClusterFigures)

    # -- inside ----------------------------------------------------------------------------------------------

    async def _leave(self, end: Callable[[], Awaitable[None]]) -> list[str]:
        """Tell the scheduler that this service leaves. The last one waits until everything is saved."""
        settings = self._settings
        reason = ""
        unsaved: list[str] | None
        try:
            async with asyncio.timeout(settings.shutdown_s + 4 * settings.hung_s):
                while True:
                    if (self._not_ready() or self._problem()) is not None and not self._connection.usable:
                        # All detectors have ended with Ray.
                        return []
                    try:
                        async with asyncio.timeout(_LEAVE_S):
                            client = await self._connection.client()
                        unsaved = await client.ask("leave", list[str] | None)
                    except (ActorDied, OSError) as error:
                        # The successor of a lost scheduler adopts the detectors, and saves them.
                        reason = str(error) or "it does not answer"
                        await asyncio.sleep(settings.ask_s)
                    else:
                        break
        except (StorageError, Unreachable, TimeoutError, DetectorUnavailable) as error:
            return [f"whether all detectors were saved is not known: {error or reason}"]
        if unsaved is None:
            return []
        await end()
        return unsaved

    async def _remove(self, method: str, removed_id: str) -> int:
        """Remove something; return 0, for an unknown version, if an earlier attempt removed it."""
        attempts = itertools.count()

        async def remove(client: LinkClient) -> int:
            earlier = next(attempts)
            try:
                return await client.ask(method, int, removed_id)
            except Refusal:
                if not earlier:
                    raise
                return 0

        return await self._connection.repeat(remove)

    def _add_unsent(self, counted: Counts) -> None:
        for name, value in counted.items():
            self._unsent[name] = self._unsent.get(name, 0) + value


def methods_for_front_ends(scheduler: Any) -> Methods:
    """Return the methods of a Scheduler or a SchedulerClient that other processes may call."""

    async def add_token(token_id: str, token: object) -> int:
        version: int = await scheduler.add_token(token_id, msgspec.convert(token, StoredToken))
        return version

    async def add_counts(counted: list[tuple[list[str], float]]) -> None:
        await scheduler.add_counts({tuple(name): value for name, value in counted})

    async def report_figures(figures: object) -> None:
        await scheduler.report_figures(msgspec.convert(figures, FrontEndFigures))

    converting = (add_token, add_counts, report_figures)
    return {
        **{name: getattr(scheduler, name) for name in _SAME_METHODS},
        **{method.__name__: method for method in converting},
    }
