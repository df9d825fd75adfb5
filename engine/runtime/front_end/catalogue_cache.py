"""A front end's cache of tokens and catalogue: read without waiting, refreshed by polling the directory."""

import asyncio
import logging
import time
from collections.abc import Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from engine.runtime.concurrency.background import Background, cancel, repeat
from engine.runtime.contract.catalogue_changes import Changes, TableUpdate
from engine.runtime.contract.errors import STARTING, DetectorUnavailable
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import KnownToken
from engine.runtime.front_end.permits import Permit
from engine.runtime.front_end.scheduler_client import SchedulerClient

_log = logging.getLogger(__name__)

_USED_S: Final = 60.0
"""The interval at which used tokens are reported."""


K = TypeVar("K")
V = TypeVar("V")


class TableCopy(Generic[K, V]):
    """A reader's copy of a table, plus the changes made through this reader since.

    Changes made here are visible at once, and updates of an older version do not undo them. The cost of a
    change or of a page does not depend on the table's size. A removed key is never reused.
    """

    def __init__(self) -> None:
        self.seen = 0
        """The version of the last update."""
        self._received: dict[K, V] = {}
        self._order: list[K] = []
        """The keys received, in order of creation, including some that were removed since."""
        self._positions: dict[K, int] = {}
        """The index of each received key in the order."""
        self._added: dict[K, tuple[int, V]] = {}
        """Changes made here that are later than the last update: version and value by key."""
        self._removed: dict[K, int] = {}
        self._by_value: dict[V, set[K]] | None = None
        """The received keys by value; None until first used."""

    def __contains__(self, key: object) -> bool:
        return key in self._received or key in self._added

    def __bool__(self) -> bool:
        return bool(self._received or self._added)

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if it does not exist."""
        value = self._received.get(key)
        if value is None and key in self._added:
            return self._added[key][1]
        return value

    def keys_of(self, value: V) -> set[K]:
        """Return the keys that have a value."""
        if self._by_value is None:
            self._by_value = {}
            for key, one in self._received.items():
                self._by_value.setdefault(one, set()).add(key)
        return self._by_value.get(value, set()) | {
            key for key, (_, one) in self._added.items() if one == value
        }

    def entries(self) -> list[tuple[K, V]]:
        """Return all keys and values, in order of creation."""
        return [*self._received.items(), *self._added_entries()]

    def page(self, after: K | None, most: int) -> list[tuple[K, V]] | None:
        """Return a page in order, from the start or after a key; None for an unknown key."""
        if after is not None and after not in self:
            return None
        begin = 0 if after is None else self._positions.get(after, len(self._order)) + 1
        keys = (self._order[position] for position in range(begin, len(self._order)))
        page = [(key, self._received[key]) for key in islice(filter(self._received.__contains__, keys), most)]
        if len(page) < most:
            added = list(self._added_entries())
            skipped = next((number for number, (key, _) in enumerate(added, 1) if key == after), 0)
            page += added[skipped : skipped + most - len(page)]
        return page

    def _added_entries(self) -> Iterator[tuple[K, V]]:
        for key, (_, value) in sorted(self._added.items(), key=lambda entry: entry[1][0]):
            if key not in self._received:
                yield key, value

    def note_added(self, key: K, value: V, version: int) -> None:
        """Note an entry that was added here."""
        if version > self.seen:
            self._added[key] = version, value

    def note_removed(self, key: K, version: int) -> None:
        """Note a key that was removed here; version 0 means that the version is unknown."""
        self._forget(key)
        self._added.pop(key, None)
        if version > self.seen:
            self._removed[key] = version

    def take(self, update: TableUpdate[K, V]) -> None:
        """Apply an update, unless it is older than the last one."""
        if update.version < self.seen:
            return
        if update.whole is not None:
            self._received = {key: value for key, value in update.whole.items() if key not in self._removed}
            self._by_value = None
            self._put_in_order()
        else:
            assert update.version - len(update.changes) <= self.seen, "the owner skips no change"
            # Some may be known from an answer that overtook this one. Applying them again has no effect.
            for key, value in update.changes:
                if value is None:
                    self._forget(key)
                elif key not in self._removed:
                    self._receive(key, value)
        self.seen = update.version
        self._added = {key: entry for key, entry in self._added.items() if entry[0] > self.seen}
        self._removed = {key: version for key, version in self._removed.items() if version > self.seen}

    def _receive(self, key: K, value: V) -> None:
        if key not in self._received:
            self._positions[key] = len(self._order)
            self._order.append(key)
        self._received[key] = value
        if self._by_value is not None:
            self._by_value.setdefault(value, set()).add(key)

    def _forget(self, key: K) -> None:
        value = self._received.pop(key, None)
        if value is not None:
            if self._by_value is not None:
                self._by_value[value].discard(key)
                if not self._by_value[value]:
                    del self._by_value[value]
            del self._positions[key]
            if len(self._order) > 2 * len(self._received):
                self._put_in_order()

    def _put_in_order(self) -> None:
        self._order = list(self._received)
        self._positions = {key: position for position, key in enumerate(self._order)}


class CatalogueCache:
    """The directory's last answer, plus the changes made through this front end since.

    Changes made here are visible at once, and answers of an older version do not undo them: a query that was
    pending while a token was revoked must not bring the token back.
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
        """The permits of the tokens used here, by digest, including some of removed tokens."""
        self._used: set[bytes] = set()
        """The digests of the tokens used since the last report."""
        self._reported_at_s = -float("inf")
        self._heard_at_s = -float("inf")
        self._asked_at_s = -float("inf")
        self._asking: asyncio.Task[None] | None = None
        """The query that is scheduled but not sent yet; later callers join it."""
        self._tasks = Background()
        self.waiting_for_slots = 0
        """How many detectors waited for an activation slot, according to the directory's last answer."""

    @property
    def fresh(self) -> bool:
        """Whether the directory's last answer is recent enough to be trusted."""
        return self.directory_answer_age_s <= self._settings.directory_answer_age_max_s

    @property
    def directory_answer_age_s(self) -> float:
        return self._loop.time() - self._heard_at_s

    def permit(self, digest: bytes) -> Permit | None:
        """Note the use of a token; return its permit, None if the token is unknown.

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
        if permit is None:
            permit = self._permits[digest] = Permit(known, time.monotonic())
        return permit

    def token_revoked(self, token_id: str, version: int) -> None:
        """Note a token that was revoked here."""
        for digest, known in self.tokens.entries():
            if known.id == token_id:
                self.tokens.note_removed(digest, version)

    async def start(self) -> None:
        """Fetch everything, then poll for changes."""
        await self.ask()
        self._tasks.begin(repeat(self._poll, self._settings.poll_s, "polling the directory"))

    async def close(self) -> None:
        await cancel(self._tasks)

    async def _poll(self) -> None:
        try:
            await self.ask()
            await self._share_rates()
            if self._loop.time() >= self._reported_at_s + _USED_S:
                await self.report_used()
        except DetectorUnavailable as error:
            _log.warning("%s", error.message)

    async def report_used(self) -> None:
        """Report the tokens used since the last report. Raises DetectorUnavailable."""
        used, self._used = self._used, set()
        self._reported_at_s = self._loop.time()
        token_ids = [known.id for digest in used if (known := self.tokens.get(digest))]
        if token_ids:
            at_ms = time.time_ns() // 1_000_000
            await self._scheduler.ask("tokens_used", type(None), token_ids, at_ms)

    async def _share_rates(self) -> None:
        """Exchange with the directory what tokens with a rate have spent here and elsewhere."""
        self._permits = {one: permit for one, permit in self._permits.items() if one in self.tokens}
        rates = {one.token.id: one.rate for one in self._permits.values() if one.rate is not None}
        if rates:
            spent = {token_id: rate.spent for token_id, rate in rates.items()}
            spent_s = {token_id: events / rates[token_id].per_s for token_id, events in spent.items()}
            known = await self._scheduler.ask("events_spent", dict[str, tuple[float, float]], spent_s)
            for token_id, in_all in known.items():
                rates[token_id].others(spent[token_id], *in_all)

    async def ask(self) -> None:
        """Query the directory, now or after the minimum interval, and apply its answer.

        Concurrent callers share one query, and queries keep a minimum interval, so that a flood of unknown
        tokens adds little load to the directory.
        """
        if self._asking is None:
            self._asking = self._tasks.begin(self._ask())
        # A cancelled caller must not cancel the query for the others.
        await asyncio.shield(self._asking)

    async def _ask(self) -> None:
        try:
            await asyncio.sleep(self._asked_at_s + self._settings.ask_s - self._loop.time())
        finally:
            # From now on, callers cannot join: they may need a newer answer than this one.
            self._asking = None
        self._asked_at_s = begun_s = self._loop.time()
        seen = self.tokens.seen, self.detectors.seen
        changes = await self._scheduler.ask("changes", Changes, *seen)
        self.tokens.take(changes.tokens)
        self.detectors.take(changes.detectors)
        if self.tokens.seen != seen[0]:
            for digest, permit in self._permits.items():
                if (known := self.tokens.get(digest)) is not None:
                    permit.renew(known)
        self.waiting_for_slots = changes.waiting_for_slots
        # The answer is as old as the query: it may lack a revocation made while the query was pending.
        self._heard_at_s = max(self._heard_at_s, begun_s)
