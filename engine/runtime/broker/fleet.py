"""The fleet of detectors, as a front end sees it: tokens, the catalogue, and a way to each detector."""

import secrets

import msgspec

from engine.evaluation.wire.events import Answer
from engine.runtime.broker.broker import Broker, Status, Tallies
from engine.runtime.catalogue.catalogue_cache import CatalogueCache, DetectorEntry
from engine.runtime.catalogue.tokens import MintedToken, digest_of, mint
from engine.runtime.contract.errors import SHUTTING_DOWN, DetectorUnavailable, no_such_detector
from engine.runtime.contract.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings


class Fleet:
    """Knows tokens and detectors, and has whoever hosts the detectors carry out operations.

    Errors of callers are Refusals, raised here or within an answer; everything that may be tried again is a
    DetectorUnavailable. For one event loop.
    """

    def __init__(self, settings: RuntimeSettings, broker: Broker, *, shared: bool = False) -> None:
        """Begin with nothing known. With `shared`, other front ends change tokens and catalogue, too."""
        self.broker = broker
        self._shared = shared
        self._cache = CatalogueCache(broker, settings)
        self._closing = False

    async def start(self) -> None:
        """Take hold of the detectors, and learn of them. Raises StorageError and DetectorUnavailable."""
        await self.broker.start()
        await self._cache.start()

    def refuse_all(self) -> None:
        """Refuse all that waits or is under way, now and from now on: there is no more time for it."""
        self._closing = True
        self.broker.refuse_all()

    async def close(self) -> list[str]:
        """Let go of everything; a sentence for each detector that could not be saved."""
        self._closing = True
        # First: a question put to a directory that has closed would start it again.
        await self._cache.close()
        return await self.broker.close()

    # -- how it stands ---------------------------------------------------------------------------------------

    @property
    def word_is_fresh(self) -> bool:
        """Whether the last word from the owner of tokens and detectors is recent enough to be trusted."""
        return self._cache.fresh

    def look_again(self) -> None:
        """Take note that tokens or detectors have changed elsewhere."""
        self._cache.look_again()

    async def status(self) -> Status:
        """Say how it stands with the detectors, and whether this front end knows of them.

        Raises DetectorUnavailable where nobody can tell.
        """
        status = await self.broker.status()
        if self.word_is_fresh:
            return status
        stale = "there is no recent word from the owner of tokens and detectors"
        return msgspec.structs.replace(status, reasons=[*status.reasons, stale])

    async def tally(self, counted: Tallies) -> None:
        """Add to what all front ends have counted. Raises DetectorUnavailable."""
        await self.broker.tally(counted)

    # -- tokens ----------------------------------------------------------------------------------------------

    async def mint_token(self) -> MintedToken:
        """Give a new token, durably known."""
        minted = mint()
        digest = digest_of(minted.token)
        version = await self.broker.add_token(minted.id, digest, minted.hint)
        self._cache.token_added(minted.id, digest, version)
        return minted

    async def revoke_token(self, token_id: str) -> None:
        """Make a token unknown, here from now on. Raises Refusal 1202."""
        self._cache.token_revoked(token_id, await self.broker.revoke_token(token_id))

    def token_known(self, digest: bytes) -> bool:
        """Whether the cache has the token. Raises DetectorUnavailable where the cache is too old to say."""
        return self._cache.has_token(digest)

    async def token_lookup(self, digest: bytes) -> bool:
        """Whether the directory, asked now, has the token."""
        await self._cache.ask()
        return self._cache.has_token(digest)

    @property
    def any_token(self) -> bool:
        """Whether any token exists; where none does, start-up mints the first."""
        return self._cache.any_token

    # -- catalogue -------------------------------------------------------------------------------------------

    async def detectors(self) -> list[tuple[str, str]]:
        """Give the ids and names of all detectors, in order of creation."""
        await self._catch_up()
        return self._cache.detectors()

    async def detectors_page(self, after: str | None, most: int) -> list[tuple[str, str]] | None:
        """Give some of them in order, from the first or from the one after an id; None for an unknown id."""
        await self._catch_up()
        return self._cache.detectors_page(after, most)

    async def detector(self, detector_id: str) -> DetectorEntry:
        """Give one detector. Raises Refusal 1200."""
        await self._catch_up()
        await self.confirm(detector_id)
        entry = self._cache.detector(detector_id)
        assert entry is not None, "it was confirmed"
        return entry

    def exists(self, detector_id: str) -> bool:
        """Whether the cache has the detector."""
        return self._cache.has_detector(detector_id)

    async def create_detector(self, name: str) -> str:
        """Enter a detector into the catalogue, durably, and give its id. Raises Refusal 1400."""
        detector_id = secrets.token_hex(16)
        version = await self.broker.create_detector(detector_id, name)
        self._cache.detector_created(detector_id, name, version)
        return detector_id

    async def delete_detector(self, detector_id: str) -> None:
        """Remove a detector, durably. Raises Refusal 1200. What waits for it is answered with 1200 too."""
        version = await self.broker.delete_detector(detector_id)
        self._cache.detector_deleted(detector_id, version)

    async def _catch_up(self) -> None:
        """Learn what was changed through others: whoever made a change there may look for it here."""
        if self._shared:
            await self._cache.ask()

    async def confirm(self, detector_id: str) -> None:
        """Raise Refusal 1200 unless the detector exists; the directory is asked before that is said."""
        if not self._cache.has_detector(detector_id):
            await self._cache.ask()
            if not self._cache.has_detector(detector_id):
                raise no_such_detector(detector_id)

    # -- operations ------------------------------------------------------------------------------------------

    async def call(self, detector_id: str, operation: Operation) -> Answer:
        """Have a detector carry out an operation, in the order of asking.

        Raises Refusal 1200; DetectorUnavailable 1401, 1501, 1502 and 1503. The other refusals are in the
        answer, and so is 1500.
        """
        if not self._cache.has_detector(detector_id):
            await self.confirm(detector_id)
        if self._closing:
            raise DetectorUnavailable(SHUTTING_DOWN, "the server is shutting down")
        return await self.broker.call(detector_id, operation)
