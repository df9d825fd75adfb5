"""A front end's cache of tokens and catalogue: read without waiting, refreshed by polling the directory."""

import asyncio
import logging
import time
from typing import Final

from engine.runtime.catalogue.table_updates import TableCopy
from engine.runtime.contract.catalogue_changes import Changes, KnownToken
from engine.runtime.contract.errors import STARTING, DetectorUnavailable
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.permits import Permit
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
        self.tokens = TableCopy[bytes, KnownToken]()
        """Tokens by digest."""
        self.detectors = TableCopy[str, str]()
        """Names by id."""
        self._permits: dict[bytes, Permit] = {}
        """By digest what the tokens may do that were used here, and some that are gone."""
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

    def permit(self, digest: bytes) -> Permit | None:
        """Note the use of a token; return what it may do, None if it is not known.

        Raises DetectorUnavailable 1501 if the directory's last answer is too old.
        """
        if not self.fresh:
            silent_s = self._settings.directory_answer_age_max_s
            message = f"the owner of the tokens has not answered for {silent_s:g} seconds"
            raise DetectorUnavailable(STARTING, message, self._settings.retry_s)
        known = self.tokens.get(digest)
        if known is None:
            return None
        self._used.add(digest)
        permit = self._permits.get(digest)
        if permit is None or permit.token is not known:
            permit = self._renew(digest, known)
        return permit

    def _renew(self, digest: bytes, known: KnownToken) -> Permit:
        permit = self._permits.get(digest)
        if permit is None:
            permit = self._permits[digest] = Permit(known, time.monotonic())
        else:
            permit.renew(known)
        return permit

    def token_revoked(self, token_id: str, version: int) -> None:
        """Note a token that was revoked here."""
        for digest, known in self.tokens.entries():
            if known.id == token_id:
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
                await self._share_rates()
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
        token_ids = [known.id for digest in used if (known := self.tokens.get(digest))]
        if token_ids:
            at_ms = time.time_ns() // 1_000_000
            await self._scheduler.ask("tokens_used", type(None), token_ids, at_ms)

    async def _share_rates(self) -> None:
        """Tell what tokens with a rate have spent here, and hear what they have spent elsewhere."""
        self._permits = {one: permit for one, permit in self._permits.items() if one in self.tokens}
        rates = {one.token.id: one.rate for one in self._permits.values() if one.rate is not None}
        if rates:
            spent = {token_id: rate.spent for token_id, rate in rates.items()}
            spent_s = {token_id: events / rates[token_id].per_s for token_id, events in spent.items()}
            known = await self._scheduler.ask("events_spent", dict[str, tuple[float, float]], spent_s)
            for token_id, in_all in known.items():
                rates[token_id].others(spent[token_id], *in_all)

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
