"""A front end's cache of tokens and catalogue: read without waiting, refreshed by polling the directory."""

import asyncio
import logging
import time
from typing import Final, NamedTuple, Protocol

from engine.runtime.catalogue.table_updates import TableCopy
from engine.runtime.contract.catalogue_changes import Changes, StoredToken, token_label
from engine.runtime.contract.errors import STARTING, DetectorUnavailable
from engine.runtime.contract.settings import RuntimeSettings

_log = logging.getLogger(__name__)

_USED_S: Final = 60.0
"""The time between two reports of the tokens that were used."""


class DetectorEntry(NamedTuple):
    """A detector in the catalogue."""

    id: str
    name: str


class ChangeSource(Protocol):
    """Returns the changes of tokens and catalogue."""

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Return the changes since those versions. Raises DetectorUnavailable."""

    async def tokens_used(self, token_ids: list[str], at_ms: int) -> None:
        """Note that tokens were used. Raises DetectorUnavailable."""


class CatalogueCache:
    """The directory's last answer, plus the changes made through this front end since.

    Changes made here are visible at once, and an answer of an older version does not undo them: a question
    that was pending while a token was revoked must not bring the token back.
    """

    def __init__(self, source: ChangeSource, settings: RuntimeSettings) -> None:
        self._source = source
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._tokens = TableCopy[bytes]()
        """By digest the id, a blank and the name."""
        self._detectors = TableCopy[str]()
        """Names by id."""
        self._used: set[bytes] = set()
        """The digests of the tokens used since the last report."""
        self._reported_at_s = -float("inf")
        self._heard_at_s = -float("inf")
        self._asked_at_s = -float("inf")
        self._asking: asyncio.Task[None] | None = None
        """The question that is scheduled but not sent yet; later callers join it."""
        self._questions: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None
        self.waiting_for_slots = 0
        """How many detectors waited for an activation slot at the directory's last answer."""

    # -- reads -----------------------------------------------------------------------------------------------

    @property
    def fresh(self) -> bool:
        """Whether the directory's last answer is recent enough to be trusted."""
        return self.directory_answer_age_s <= self._settings.directory_answer_age_max_s

    @property
    def directory_answer_age_s(self) -> float:
        """The age of the directory's last answer."""
        return self._loop.time() - self._heard_at_s

    def use_token(self, digest: bytes) -> bool:
        """Note the use of a token; return whether it is known. Raises DetectorUnavailable 1501 if stale."""
        if not self.fresh:
            silent_s = self._settings.directory_answer_age_max_s
            message = f"the owner of the tokens has not answered for {silent_s:g} seconds"
            raise DetectorUnavailable(STARTING, message, self._settings.retry_s)
        known = digest in self._tokens
        if known:
            self._used.add(digest)
        return known

    def token(self, digest: bytes) -> str:
        """Return the id of a token, a blank and its name; an empty text if it is not known."""
        return self._tokens.get(digest) or ""

    @property
    def any_token(self) -> bool:
        """Whether any token exists."""
        return bool(self._tokens)

    def has_detector(self, detector_id: str) -> bool:
        """Whether a detector is in the catalogue."""
        return detector_id in self._detectors

    def detector(self, detector_id: str) -> DetectorEntry | None:
        """Return one detector, None if it does not exist."""
        name = self._detectors.get(detector_id)
        return None if name is None else DetectorEntry(detector_id, name)

    def detectors(self) -> list[tuple[str, str]]:
        """Return the ids and names of all detectors, in order of creation."""
        return self._detectors.entries()

    def detectors_page(self, after: str | None, most: int) -> list[tuple[str, str]] | None:
        """Return a page in order, from the start or after an id; None for an unknown id."""
        return self._detectors.page(after, most)

    # -- changes made here -----------------------------------------------------------------------------------

    def token_added(self, token_id: str, token: StoredToken, version: int) -> None:
        """Note a token that was added here."""
        self._tokens.note_added(token.digest, token_label(token_id, token), version)

    def token_revoked(self, token_id: str, version: int) -> None:
        """Note a token that was revoked here."""
        for digest, known in self._tokens.entries():
            if known.partition(" ")[0] == token_id:
                self._tokens.note_removed(digest, version)

    def detector_created(self, detector_id: str, name: str, version: int) -> None:
        """Note a detector that was created here."""
        self._detectors.note_added(detector_id, name, version)

    def detector_deleted(self, detector_id: str, version: int) -> None:
        """Note a detector that was deleted here or elsewhere."""
        self._detectors.note_removed(detector_id, version)

    # -- polling ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Fetch everything, then poll for changes."""
        await self.ask()
        self._keeping = asyncio.create_task(self._keep_fresh())

    async def close(self) -> None:
        """Stop polling."""
        tasks = [*self._questions, *([self._keeping] if self._keeping else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_fresh(self) -> None:
        while True:
            try:
                await self.ask()
                if self._loop.time() >= self._reported_at_s + _USED_S:
                    await self.report_used()
            except DetectorUnavailable as error:
                _log.warning("%s", error.message)
            except Exception:  # noqa: BLE001
                # The error may be gone at the next poll; without one the cache would go stale for good.
                _log.exception("polling the directory failed")
            await asyncio.sleep(self._settings.poll_s)

    async def report_used(self) -> None:
        """Report the tokens used since the last report. Raises DetectorUnavailable."""
        used, self._used = self._used, set()
        self._reported_at_s = self._loop.time()
        if token_ids := [known.partition(" ")[0] for digest in used if (known := self._tokens.get(digest))]:
            await self._source.tokens_used(token_ids, time.time_ns() // 1_000_000)

    async def ask(self) -> None:
        """Ask the directory once, now or after the minimum interval, and take over its answer.

        Concurrent callers share one question, and questions keep a minimum interval. So a flood of unknown
        tokens adds little load to the directory.
        """
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._questions.add(self._asking)
            self._asking.add_done_callback(self._asked)
        # A caller that is cancelled must not cancel the question for the others.
        await asyncio.shield(self._asking)

    async def _ask(self) -> None:
        distance_s = self._asked_at_s + self._settings.ask_s - self._loop.time()
        if distance_s > 0:
            await asyncio.sleep(distance_s)
        # From here on nobody may join: a later caller may need an answer newer than this one.
        self._asking = None
        self._asked_at_s = begun_s = self._loop.time()
        changes = await self._source.changes(self._tokens.seen, self._detectors.seen)
        self._tokens.take(changes.tokens)
        self._detectors.take(changes.detectors)
        self.waiting_for_slots = changes.waiting_for_slots
        # The answer is as old as the question: it may lack a revocation made while it was pending.
        self._heard_at_s = max(self._heard_at_s, begun_s)

    def _asked(self, question: asyncio.Task[None]) -> None:
        self._questions.discard(question)
        if self._asking is question:
            self._asking = None
        if not question.cancelled():
            # The callers have raised it; this marks it as retrieved.
            question.exception()
