"""The fleet of detectors, as the front end sees it: tokens, the catalogue, and a lane to each detector."""

import asyncio
import logging
import secrets
from dataclasses import dataclass, field

from engine.evaluation.events import Answer
from engine.runtime.directory_client import DirectoryClient
from engine.runtime.errors import SHUTTING_DOWN, DetectorUnavailable, no_such_detector
from engine.runtime.handles import ActorStarter, DirectoryStarter
from engine.runtime.lanes import Lane
from engine.runtime.life import COUNTED, Services
from engine.runtime.operations import Operation
from engine.runtime.pool import Pool
from engine.runtime.residency import Residency
from engine.runtime.settings import RuntimeSettings
from engine.runtime.tokens import MintedToken, digest_of, mint
from engine.runtime.view import DetectorEntry, View

_log = logging.getLogger(__name__)

_PURGE_WAIT_S = 1.0
_DAMAGE_KEPT = 100


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether requests can be served; `reasons` says why not, or what is amiss although they can."""

    ready: bool
    reasons: list[str] = field(default_factory=list)


class Fleet:
    """Finds, wakes and rests detectors, and passes operations to them. For one event loop.

    Errors of callers are Refusals, raised here or within an answer; everything that may be tried again is a
    DetectorUnavailable.
    """

    def __init__(
        self, settings: RuntimeSettings, actors: ActorStarter, directories: DirectoryStarter
    ) -> None:
        self._settings = settings
        self._directory = DirectoryClient(directories, settings)
        self._view = View(self._directory, settings)
        self._pool = Pool(actors, settings)
        self._services = Services(
            settings,
            self._pool,
            Residency(settings.max_resident),
            self._directory,
            self._damaged,
            self._in_trouble,
        )
        self._lanes: dict[str, Lane] = {}
        self._damage: list[str] = []
        self._trouble: dict[str, str] = {}
        self._purges: set[asyncio.Task[None]] = set()
        self._closing = False

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the data folder and begin. Raises StorageError, FolderInUse among them."""
        opened = await self._directory.start()
        for damage in opened.damage:
            self._note_damage("tokens and catalogue", damage)
        await self._view.start()
        self._pool.start()

    async def close(self) -> list[str]:
        """Answer what waits, save every detector that is awake, and let go of everything.

        Gives a sentence for each detector that could not be saved.
        """
        self._closing = True
        lanes = list(self._lanes.values())
        reasons = await asyncio.gather(*(lane.close() for lane in lanes))
        await asyncio.gather(*self._purges, return_exceptions=True)
        await self._view.close()
        await self._pool.close()
        await self._directory.close()
        return [
            f"the detector {lane.detector_id} was not saved: {reason}"
            for lane, reason in zip(lanes, reasons, strict=True)
            if reason is not None
        ]

    def readiness(self) -> Readiness:
        """Say whether requests can be served."""
        reasons = []
        if self._closing:
            reasons.append("the server is shutting down")
        if not self._view.fresh:
            reasons.append("there is no recent word from the owner of tokens and detectors")
        if not self._pool.started:
            reasons.append("no process for detectors has started yet")
        return Readiness(not reasons, [*reasons, *self._trouble.values(), *self._damage])

    # -- tokens ----------------------------------------------------------------------------------------------

    async def mint_token(self) -> MintedToken:
        """Give a new token, durably known."""
        minted = mint()
        digest = digest_of(minted.token)
        version = await self._directory.add_token(minted.id, digest, minted.hint)
        self._view.token_added(minted.id, digest, version)
        return minted

    async def revoke_token(self, token_id: str) -> None:
        """Make a token unknown, here from now on. Raises Refusal 1202."""
        self._view.token_revoked(token_id, await self._directory.revoke_token(token_id))

    def token_known(self, digest: bytes) -> bool:
        """Whether the view has the token. Raises DetectorUnavailable where the view is too old to say."""
        return self._view.has_token(digest)

    async def token_lookup(self, digest: bytes) -> bool:
        """Whether the directory, asked now, has the token."""
        await self._view.ask()
        return self._view.has_token(digest)

    @property
    def any_token(self) -> bool:
        """Whether any token exists; where none does, start-up mints the first."""
        return self._view.any_token

    # -- catalogue -------------------------------------------------------------------------------------------

    async def detectors(self) -> list[DetectorEntry]:
        """Give all detectors, in order of creation."""
        return self._view.detectors()

    async def detector(self, detector_id: str) -> DetectorEntry:
        """Give one detector. Raises Refusal 1200."""
        await self._confirm(detector_id)
        entry = self._view.detector(detector_id)
        assert entry is not None, "it was confirmed"
        return entry

    def exists(self, detector_id: str) -> bool:
        """Whether the view has the detector."""
        return self._view.has_detector(detector_id)

    async def create_detector(self, name: str) -> str:
        """Enter a detector into the catalogue, durably, and give its id."""
        detector_id = secrets.token_hex(16)
        version = await self._directory.create_detector(detector_id, name)
        self._view.detector_created(detector_id, name, version)
        return detector_id

    async def delete_detector(self, detector_id: str) -> None:
        """Remove a detector, durably. Raises Refusal 1200. What waits for it is answered with 1200 too."""
        version = await self._directory.delete_detector(detector_id)
        self._view.detector_deleted(detector_id, version)
        purge = asyncio.create_task(self._purge(detector_id))
        self._purges.add(purge)
        purge.add_done_callback(self._purges.discard)
        # The detector is gone either way; its files usually are too by the time that the caller knows.
        await asyncio.wait({purge}, timeout=_PURGE_WAIT_S)

    async def _purge(self, detector_id: str) -> None:
        lane = self._lanes.get(detector_id)
        if lane is not None:
            await lane.delete()
            self._lanes.pop(detector_id, None)
        self._trouble.pop(detector_id, None)
        try:
            await self._directory.purge_detector(detector_id)
        except DetectorUnavailable as error:
            # The directory's next opening sees to it.
            _log.warning("the files of the detector %s are still there: %s", detector_id, error.message)

    async def _confirm(self, detector_id: str) -> None:
        """Raise Refusal 1200 unless the detector exists; the directory is asked before that is said."""
        if not self._view.has_detector(detector_id):
            await self._view.ask()
            if not self._view.has_detector(detector_id):
                raise no_such_detector(detector_id)

    # -- operations ------------------------------------------------------------------------------------------

    async def call(self, detector_id: str, operation: Operation) -> Answer:
        """Have a detector carry out an operation, in the order of asking.

        Raises Refusal 1200; DetectorUnavailable 1401, 1501, 1502 and 1503. The other refusals are in the
        answer, and so is 1500.
        """
        if detector_id not in self._lanes:
            await self._confirm(detector_id)
        if self._closing:
            raise DetectorUnavailable(SHUTTING_DOWN, "the server is shutting down")
        return await self._lane(detector_id).ask(operation)

    @property
    def awake(self) -> int:
        """How many detectors are awake."""
        return sum(lane.awake for lane in self._lanes.values())

    @property
    def troubles(self) -> list[str]:
        """What is in the way of detectors now, a sentence for each."""
        return list(self._trouble.values())

    @property
    def counts(self) -> dict[str, int]:
        """What happened to detectors, how often since the start: for each name of `life.COUNTED`."""
        return {name: self._services.counts[name] for name in COUNTED}

    def _lane(self, detector_id: str) -> Lane:
        lane = self._lanes.get(detector_id)
        if lane is None:
            lane = self._lanes[detector_id] = Lane(detector_id, self._services, self._rested)
        return lane

    def _rested(self, lane: Lane) -> None:
        """Forget the lane of a detector that rests: there may be many more detectors than lanes."""
        if lane.forgettable and self._lanes.get(lane.detector_id) is lane:
            del self._lanes[lane.detector_id]

    def _damaged(self, detector_id: str, damage: str) -> None:
        self._note_damage(f"detector {detector_id}", damage)

    def _note_damage(self, whose: str, damage: str) -> None:
        """Log and keep that a file had to be set aside; a few of many will do for whoever looks."""
        _log.error("%s: set aside: %s", whose, damage)
        self._damage = [*self._damage, f"{whose}: set aside: {damage}"][-_DAMAGE_KEPT:]

    def _in_trouble(self, detector_id: str, trouble: str | None) -> None:
        """Log and keep what is in a detector's way, until it is no more."""
        if trouble is None:
            self._trouble.pop(detector_id, None)
            return
        said = f"detector {detector_id}: {trouble}"
        _log.error("%s", said)
        self._trouble[detector_id] = said
