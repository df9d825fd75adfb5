"""A front end's view of tokens and catalogue: read without waiting, kept fresh by asking the directory."""

import asyncio
import logging
from contextlib import suppress
from typing import NamedTuple, Protocol

from engine.runtime.catalogue.table_updates import TableCopy
from engine.runtime.contract.catalogue_changes import Changes
from engine.runtime.contract.errors import STARTING, DetectorUnavailable
from engine.runtime.contract.settings import RuntimeSettings

_log = logging.getLogger(__name__)


class DetectorEntry(NamedTuple):
    """A detector as the catalogue has it."""

    id: str
    name: str


class ChangeSource(Protocol):
    """Whoever can be asked what is new."""

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Give what is new since then. Raises DetectorUnavailable."""


class CatalogueCache:
    """What the directory said last, with what was changed from here since.

    A change made from here shows at once. What the directory says of an earlier version does not undo it: a
    question that was under way while a token was revoked must not bring the token back.
    """

    def __init__(self, source: ChangeSource, settings: RuntimeSettings) -> None:
        self._source = source
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._tokens = TableCopy[bytes]()
        """Ids by digest."""
        self._detectors = TableCopy[str]()
        """Names by id."""
        self._heard_at_s = -float("inf")
        self._asked_at_s = -float("inf")
        self._asking: asyncio.Task[None] | None = None
        """The question that has not been put yet, for others to join."""
        self._questions: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._look = asyncio.Event()

    # -- read ------------------------------------------------------------------------------------------------

    @property
    def fresh(self) -> bool:
        """Whether the directory's last word is recent enough to be trusted."""
        return self._loop.time() - self._heard_at_s <= self._settings.word_age_max_s

    def has_token(self, digest: bytes) -> bool:
        """Whether a token is known. Raises DetectorUnavailable 1501 where the cache is too old to say."""
        if not self.fresh:
            silent_s = self._settings.word_age_max_s
            message = f"there was no word from the owner of the tokens for {silent_s:g} seconds"
            raise DetectorUnavailable(STARTING, message, self._settings.retry_s)
        return digest in self._tokens

    @property
    def any_token(self) -> bool:
        """Whether there is any token at all."""
        return bool(self._tokens)

    def has_detector(self, detector_id: str) -> bool:
        """Whether a detector is in the catalogue."""
        return detector_id in self._detectors

    def detector(self, detector_id: str) -> DetectorEntry | None:
        """Give one detector."""
        name = self._detectors.get(detector_id)
        return None if name is None else DetectorEntry(detector_id, name)

    def detectors(self) -> list[tuple[str, str]]:
        """Give the ids and names of all detectors, in order of creation."""
        return self._detectors.entries()

    def detectors_page(self, after: str | None, most: int) -> list[tuple[str, str]] | None:
        """Give some of them in order, from the first or from the one after an id; None for an unknown id."""
        return self._detectors.page(after, most)

    # -- changes made from here ------------------------------------------------------------------------------

    def token_added(self, token_id: str, digest: bytes, version: int) -> None:
        """Take note of a token that was added from here."""
        self._tokens.note_added(digest, token_id, version)

    def token_revoked(self, token_id: str, version: int) -> None:
        """Take note of a token that was revoked from here."""
        for digest, known in self._tokens.entries():
            if known == token_id:
                self._tokens.note_removed(digest, version)

    def detector_created(self, detector_id: str, name: str, version: int) -> None:
        """Take note of a detector that was created from here."""
        self._detectors.note_added(detector_id, name, version)

    def detector_deleted(self, detector_id: str, version: int) -> None:
        """Take note of a detector that was deleted, from here or elsewhere."""
        self._detectors.note_removed(detector_id, version)

    # -- asking ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Ask for all there is, and then for what is new, again and again."""
        await self.ask()
        self._keeping = asyncio.create_task(self._keep_fresh())

    def look_again(self) -> None:
        """Ask soon: something is said to be new."""
        self._look.set()

    async def close(self) -> None:
        """Ask no more."""
        tasks = [*self._questions, *([self._keeping] if self._keeping else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_fresh(self) -> None:
        while True:
            self._look.clear()
            try:
                await self.ask()
            except DetectorUnavailable as error:
                _log.warning("%s", error.message)
            except Exception:  # noqa: BLE001
                # The cache must not go stale for good over what may be over by the next question.
                _log.exception("the directory's word was not understood")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.poll_s):
                    await self._look.wait()

    async def ask(self) -> None:
        """Ask the directory once, beginning now or later, and take note of what it says.

        Many who ask at the same time share one question, and questions keep a distance: a flood of unknown
        tokens costs the directory no more than that.
        """
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._questions.add(self._asking)
            self._asking.add_done_callback(self._asked)
        # One caller that goes away takes the question from no other.
        await asyncio.shield(self._asking)

    async def _ask(self) -> None:
        distance_s = self._asked_at_s + self._settings.ask_s - self._loop.time()
        if distance_s > 0:
            await asyncio.sleep(distance_s)
        # From here on nobody may join: what they want to know may be newer than the question.
        self._asking = None
        self._asked_at_s = begun_s = self._loop.time()
        changes = await self._source.changes(self._tokens.seen, self._detectors.seen)
        self._tokens.take(changes.tokens)
        self._detectors.take(changes.detectors)
        # The word is as old as the question: what was revoked while it was under way may not be in it.
        self._heard_at_s = max(self._heard_at_s, begun_s)

    def _asked(self, question: asyncio.Task[None]) -> None:
        self._questions.discard(question)
        if self._asking is question:
            self._asking = None
        if not question.cancelled():
            # Whoever asked was told; where nobody is left, there is nobody to tell.
            question.exception()
