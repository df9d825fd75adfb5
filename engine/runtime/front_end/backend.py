"""The service as a front end sees it: tokens, the catalogue, and calls to detectors."""

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

import msgspec

from engine.evaluation.wire.events import Answer, Done, Refused
from engine.runtime.concurrency.background import Background, finished
from engine.runtime.concurrency.beats import LoopLag
from engine.runtime.contract.catalogue_changes import LoggedChange, LoggedPage, Made, decode_changes
from engine.runtime.contract.errors import (
    TOO_MANY_WAIT,
    DetectorUnavailable,
    no_such_detector,
    no_such_name,
    shutting_down,
)
from engine.runtime.contract.figures import (
    ClusterFigures,
    Counts,
    FrontEndFigures,
    MemoryFigures,
    NodeFigures,
    ProcessFigures,
    Status,
    WorkerFigures,
)
from engine.runtime.contract.requests.calls import Route
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import FULL, Grant, MintedToken, TokenEntry, known_token, mint
from engine.runtime.front_end.catalogue_cache import CatalogueCache
from engine.runtime.front_end.channels.channels import Channels, Connect
from engine.runtime.front_end.channels.mailbox import Request
from engine.runtime.front_end.memory_budget import ANSWERS, MemoryBudget
from engine.runtime.front_end.permits import UNBOUNDED, Permit
from engine.runtime.front_end.scheduler_client import SchedulerClient
from engine.runtime.process.processes import usage
from engine.runtime.transport.link_client import LinkClient

if TYPE_CHECKING:
    from collections.abc import Callable

_REPORTED_AT_ONCE: Final = 100
"""The maximum number of changes in one record of the log."""


class Backend:
    """A front end's access to tokens, catalogue and detectors. For one event loop.

    A change of tokens or the catalogue that has begun is completed even if its caller is cancelled. Errors of
    callers are Refusals, raised or inside an answer. After a DetectorUnavailable, a retry may succeed.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        scheduler: SchedulerClient,
        *,
        shared: bool = False,
        connect: Connect = LinkClient.to,
    ) -> None:
        """Start with an empty cache. With `shared`, other front ends change tokens and catalogue too."""
        self.scheduler = scheduler
        self._settings = settings
        self.memory = MemoryBudget(settings.memory_bytes_max)
        self._shared = shared
        self._cache = cache = CatalogueCache(scheduler, settings)
        self.channels = Channels(
            settings, self._locate, connect, self.memory, lambda: cache.waiting_for_slots
        )
        self._lag = LoopLag()
        self._closing = False
        self.certificate_is_stale: Callable[[], bool] = lambda: False
        self.background = Background()
        """The changes of tokens and the catalogue in progress, including those with cancelled callers."""

    async def start(self) -> None:
        """Start the scheduler and fill the cache. Raises StorageError and DetectorUnavailable."""
        await self.scheduler.start()
        await self._cache.start()

    def refuse_all(self) -> None:
        """Refuse all waiting, running and future requests, because the time to serve them is over."""
        self._closing = True
        self.scheduler.refuse_all()
        self.channels.refuse_all()

    async def close(self) -> list[str]:
        """Save all detectors and stop; return a sentence for each one that could not be saved."""
        self._closing = True
        self._lag.end()
        if self.background:
            await asyncio.wait(self.background, timeout=self._settings.shutdown_s)
        # The cache is closed first: its next poll would restart a closed directory.
        await self._cache.close()
        await self.channels.shut_down()
        unsaved = await self.scheduler.close()
        await self.channels.close()
        return unsaved

    # -- status ----------------------------------------------------------------------------------------------

    @property
    def answer_is_fresh(self) -> bool:
        """Whether the directory's last answer is recent enough to be trusted."""
        return self._cache.fresh

    async def status(self) -> Status:
        """Return the scheduler's state, and whether this front end's cache is stale.

        Raises DetectorUnavailable if the scheduler does not answer.
        """
        return self._judged(await self.scheduler.status())

    def _judged(self, status: Status) -> Status:
        if self.answer_is_fresh:
            return status
        stale = "the directory of tokens and detectors has not answered recently"
        return msgspec.structs.replace(status, reasons=[*status.reasons, stale])

    async def cluster(self) -> ClusterFigures:
        """Return the cluster's figures, with the names of detectors. Raises DetectorUnavailable."""
        await self.report_figures()
        cluster = await self.scheduler.ask("cluster", ClusterFigures)
        return msgspec.structs.replace(cluster, workers=[self._named(worker) for worker in cluster.workers])

    def _named(self, worker: WorkerFigures) -> WorkerFigures:
        named = [
            msgspec.structs.replace(one, name=self._cache.detectors.get(one.id) or "")
            for one in worker.detectors
        ]
        return msgspec.structs.replace(worker, detectors=named)

    def without_directory(self, error: DetectorUnavailable) -> tuple[Status, ClusterFigures]:
        """Return the last known state and this front end's figures, after the directory did not answer.

        It is not asked again: that would take as long again, and callers such as Prometheus wait no longer.
        Raises the error if no state is known.
        """
        figures = self._figures()
        cluster = ClusterFigures([], figures.process, [figures], [], [], None, {}, directory_answers=False)
        return self._judged(self.scheduler.last_status(error)), cluster

    async def report_figures(self) -> None:
        """Send this front end's figures to the scheduler. Raises DetectorUnavailable."""
        await self.scheduler.ask("report_figures", type(None), self._figures())

    def _figures(self) -> FrontEndFigures:
        waiting, waiting_s = self.channels.waiting()
        return FrontEndFigures(
            ProcessFigures(*usage()),
            waiting,
            waiting_s,
            self._cache.directory_answer_age_s,
            self._lag.longest_s,
            MemoryFigures(self.memory.bodies, self.memory.requests, self.memory.answers),
            self.certificate_is_stale(),
        )

    async def add_counts(self, counted: Counts) -> None:
        """Add to the metrics of all front ends. Raises DetectorUnavailable."""
        await self.scheduler.add_counts(counted.items())

    # -- tokens ----------------------------------------------------------------------------------------------

    @finished
    async def mint_token(self, name: str = "", grant: Grant = FULL, by: Permit = UNBOUNDED) -> MintedToken:
        minted, made = mint(name, grant), Made.now(by.token.label)
        version = await self.scheduler.ask("add_token", int, minted.id, minted.stored, made)
        self._cache.tokens.note_added(minted.stored.digest, known_token(minted.id, minted.stored), version)
        return minted

    @finished
    async def revoke_token(self, token_id: str, by: Permit = UNBOUNDED) -> None:
        """Revoke a token; this front end rejects it from now on. Raises Refusal 1202."""
        made = Made.now(by.token.label)
        self._cache.token_revoked(token_id, await self.scheduler.ask("revoke_token", int, token_id, made))

    async def tokens(self) -> list[TokenEntry]:
        """Return all tokens, in order of creation."""
        await self._cache.report_used()
        return await self.scheduler.ask("tokens", list[TokenEntry])

    def permit(self, digest: bytes) -> Permit | None:
        """Return a token's permit; None if the cache has no token of that digest.

        Raises DetectorUnavailable if the cache is stale.
        """
        return self._cache.permit(digest)

    async def permit_asked(self, digest: bytes) -> Permit | None:
        """Return a token's permit after asking the directory; None if it has no token of that digest."""
        await self._cache.ask()
        return self._cache.permit(digest)

    @property
    def any_token(self) -> bool:
        """Whether any token exists; if not, start-up mints the first."""
        return bool(self._cache.tokens)

    # -- catalogue -------------------------------------------------------------------------------------------

    async def detectors(self) -> list[tuple[str, str]]:
        """Return the ids and names of all detectors, in order of creation."""
        await self._catch_up()
        return self._cache.detectors.entries()

    async def detectors_page(self, after: str | None, most: int) -> list[tuple[str, str]] | None:
        """Return a page in order, from the start or after an id; None for an unknown id."""
        await self._catch_up()
        return self._cache.detectors.page(after, most)

    async def detector(self, detector_id: str) -> str:
        """Return the name of a detector. Raises Refusal 1200."""
        await self._catch_up()
        await self.confirm(detector_id)
        name = self._cache.detectors.get(detector_id)
        assert name is not None, "`confirm` has checked it"
        return name

    def exists(self, detector_id: str) -> bool:
        """Whether the cache has the detector."""
        return detector_id in self._cache.detectors

    def only_named(self, name: str, by: Permit = UNBOUNDED) -> str | None:
        """Return the id of the only cached detector of that name that a token may use.

        Returns None if there is none, or more than one.
        """
        found = self._named_so(name, by)
        return found[0] if len(found) == 1 else None

    def _named_so(self, name: str, by: Permit) -> list[str]:
        return list(filter(by.sees, self._cache.detectors.keys_of(name)))

    async def detector_named(self, name: str, by: Permit = UNBOUNDED) -> str:
        """Return the id of the only detector of that name; asks the directory before refusing.

        Raises Refusal 1200.
        """
        if (found := self.only_named(name, by)) is None:
            await self._cache.ask()
            found = self.only_named(name, by)
        if found is None:
            raise no_such_name(name, len(self._named_so(name, by)))
        return found

    @finished
    async def create_detector(self, name: str, by: Permit = UNBOUNDED) -> str:
        """Add a detector durably, and return its id. Raises Refusal 1400."""
        detector_id = secrets.token_hex(16)
        made = Made.now(by.token.label)
        version = await self.scheduler.ask("create_detector", int, detector_id, name, by.owner, made)
        self._created(detector_id, name, version, by)
        return detector_id

    @finished
    async def fork_detector(self, source_id: str, name: str, by: Permit = UNBOUNDED) -> str:
        """Add a detector with the rules and the state of another one, durably, and return its id.

        Raises Refusal 1200 and 1400.
        """
        detector_id = secrets.token_hex(16)
        asked = (source_id, detector_id, name, by.owner, Made.now(by.token.label))
        version = await self.scheduler.ask("fork_detector", int, *asked)
        self._created(detector_id, name, version, by)
        return detector_id

    def _created(self, detector_id: str, name: str, version: int, by: Permit) -> None:
        self._cache.detectors.note_added(detector_id, name, version)
        by.made(detector_id)

    @finished
    async def delete_detector(self, detector_id: str, by: Permit = UNBOUNDED) -> None:
        """Remove a detector durably. Raises Refusal 1200, and refuses its waiting requests with it."""
        made = Made.now(by.token.label)
        version = await self.scheduler.ask("delete_detector", int, detector_id, made)
        self._cache.detectors.note_removed(detector_id, version)
        self.channels.deleted(detector_id)

    @finished
    async def move_detector(self, detector_id: str, node: str, by: Permit = UNBOUNDED) -> Route:
        """Move a detector to a node, or for an empty one to any but its own; return its route.

        Raises Refusal 1200 and 1204.
        """
        await self.confirm(detector_id)
        route = await self.scheduler.ask("move", Route, detector_id, node)
        name = self._cache.detectors.get(detector_id) or ""
        new = msgspec.json.encode({"node": route.address.node})
        await self._report([LoggedChange("detector", "move", detector_id, name, new=new)], by.token.label)
        return route

    @finished
    async def drain_node(self, node: str, *, draining: bool, by: Permit = UNBOUNDED) -> NodeFigures:
        """Start or stop draining a node, which moves its detectors elsewhere. Raises Refusal 1204."""
        found = await self.scheduler.ask("drain", NodeFigures, node, draining)
        action = "drain" if draining else "undrain"
        await self._report([LoggedChange("node", action, found.id, found.host)], by.token.label)
        return found

    # -- the changes log -------------------------------------------------------------------------------------

    async def change(self, detector_id: str, operation: Operation) -> Answer:
        """Execute a change on a detector, and log it before answering. Raises as `call` does.

        If the log cannot be reached, the answer is 1502: the change has happened, but must not count as
        acknowledged. If the caller is cancelled, a waiting change is dropped, and one that was sent is
        logged.
        """
        requests: list[Request] = []
        work = self.background.begin(self._changed(detector_id, operation, requests))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if not any(request.sent for request in requests):
                work.cancel()
            raise

    async def _changed(self, detector_id: str, operation: Operation, requests: list[Request]) -> Answer:
        answer = await self.call(detector_id, operation, requests)
        if isinstance(answer, Done) and answer.changes:
            made = decode_changes(answer.changes)
            replace = msgspec.structs.replace
            await self._report([replace(one, detector=detector_id) for one in made], operation.by)
        return answer

    async def _report(self, changes: list[LoggedChange], by: str) -> None:
        """Log changes of the current request. Raises DetectorUnavailable 1502."""
        made = Made.now(by)
        replace = msgspec.structs.replace
        for begin in range(0, len(changes), _REPORTED_AT_ONCE):
            part = [replace(one, made=made) for one in changes[begin : begin + _REPORTED_AT_ONCE]]
            await self.scheduler.ask("report_changes", type(None), secrets.token_hex(8), part)

    async def logged_changes(self, after: int, limit: int) -> LoggedPage:
        """Return at most `limit` changes of the log after a number, oldest first."""
        return await self.scheduler.ask("logged_changes", LoggedPage, after, limit)

    async def _locate(self, detector_id: str, left_epoch: int, large: bool = False) -> Route:
        return await self.scheduler.ask("route", Route, detector_id, left_epoch, large)

    async def _catch_up(self) -> None:
        """Fetch the changes made through other front ends, so that their callers see them here."""
        if self._shared:
            await self._cache.ask()

    async def confirm(self, detector_id: str, by: Permit = UNBOUNDED) -> None:
        """Raise Refusal 1200 unless the detector exists and a token may use it.

        Asks the directory before refusing: another front end may just have created the detector.
        """
        if not (self.exists(detector_id) and by.sees(detector_id)):
            await self._cache.ask()
            if not (self.exists(detector_id) and by.sees(detector_id)):
                raise no_such_detector(detector_id)

    async def newest_firings(self, detector_ids: list[str]) -> dict[str, int]:
        """Return the numbers of the newest firings in the feeds of detectors, as far as known.

        Does not activate detectors. Raises DetectorUnavailable.
        """
        return await self.scheduler.ask("newest_firings", dict[str, int], detector_ids)

    # -- operations ------------------------------------------------------------------------------------------

    async def call(
        self, detector_id: str, operation: Operation, requests: list[Request] | None = None
    ) -> Answer:
        """Execute an operation on a detector, after all earlier ones.

        Raises Refusal 1200; DetectorUnavailable 1401, 1501, 1502 and 1503. Other refusals, and 1500, are in
        the answer. The request is added to `requests`.
        """
        if detector_id not in self._cache.detectors:
            await self.confirm(detector_id)
        if self._closing:
            raise shutting_down()
        answer = await self.channels[detector_id].call(operation, requests)
        if isinstance(answer, Refused) and answer.entries[0].code == TOO_MANY_WAIT:
            # The answers stored for idempotency keys have used up their memory.
            self.memory.throttled[ANSWERS] += 1
        return answer
