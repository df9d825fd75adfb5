"""A front end's cache of tokens and catalogue: read without waiting, refreshed by polling the directory."""

import asyncio
import logging
import time
from typing import Final

from engine.runtime.catalogue.table_updates import TableCopy
from engine.runtime.contract.catalogue_changes import Changes
from engine.runtime.contract.errors import STARTING, DetectorUnavailable
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.scheduler_client import SchedulerClient

_log = logging.getLogger(__name__)

_USED_S: Final = 60.0
"""The time between two reports of the tokens that were used."""


class CatalogueCache:
    """The directory's last answer, plus the changes made through this front end since.

    Changes made here are visible at once, and an answer of an older version does not undo them: a question
    that was pending while a token was revoked must not bring the token back.
    """

    def __init__(self, scheduler: SchedulerClient, settings: RuntimeSettings) -> None:
        self._scheduler = scheduler
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.tokens = TableCopy[bytes]()
        """By digest the id, a blank and the name."""
        self.detectors = TableCopy[str]()
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
        known = digest in self.tokens
        if known:
            self._used.add(digest)
        return known

    def token(self, digest: bytes) -> str:
        """Return the id of a token, a blank and its name; an empty text if it is not known."""
        return self.tokens.get(digest) or ""

    def token_revoked(self, token_id: str, version: int) -> None:
        """Note a token that was revoked here."""
        for digest, known in self.tokens.entries():
            if known.partition(" ")[0] == token_id:
                self.tokens.note_removed(digest, version)

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
        token_ids = [known.partition(" ")[0] for digest in used if (known := self.tokens.get(digest))]
        if token_ids:
            at_ms = time.time_ns() // 1_000_000
            await self._scheduler.ask("tokens_used", type(None), token_ids, at_ms)

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
        seen = self.tokens.seen, self.detectors.seen
        changes = await self._scheduler.ask("changes", Changes, *seen)
        self.tokens.take(changes.tokens)
        self.detectors.take(changes.detectors)
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
