"""The changes log of a directory: the newest are in its state, the others in pages beside its snapshots."""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from engine.runtime.contract.catalogue_changes import LoggedChange, LoggedPage
from snapshots.format.pages import Page
from snapshots.store import Store

PAGE_VERSION: Final = 1
"""The version of a page: the changes as msgpack."""
_CHANGES_IN_STATE_MAX: Final = 1_000
_BYTES_IN_STATE_MAX: Final = 256 * 1024
"""Recent changes of more than this size move to a page, so that later snapshots do not repeat them."""
_IDS_KEPT: Final = 256
"""A repetition of one of so many latest reports is noticed."""
_DAY_MS: Final = 24 * 60 * 60 * 1000

_decode_page: Final = msgspec.msgpack.Decoder(list[LoggedChange]).decode


class WrittenPage(msgspec.Struct, frozen=True, array_like=True):
    """A page on the disk: its first and last change, the time of the newest one, and its own number."""

    first: int
    last: int
    newest_ms: int
    sequence: int


class ChangeLog(msgspec.Struct):
    """The log, as part of the directory's state."""

    last: int = 0
    """The number of the last change ever logged."""
    recent: list[LoggedChange] = []
    """The changes that are in no page."""
    bytes: int = 0
    """Their approximate size."""
    pages: list[WrittenPage] = []
    """The pages, oldest first."""
    ids: list[str] = []
    """The ids of the latest reports."""

    def note(self, change: LoggedChange) -> None:
        self.last += 1
        self.recent.append(msgspec.structs.replace(change, seq=self.last))
        self.bytes += len(change.old) + len(change.new)

    def report(self, report_id: str, changes: Iterable[LoggedChange]) -> None:
        """Log the changes of a report that is no repetition."""
        self.ids = [*self.ids, report_id][-_IDS_KEPT:]
        for change in changes:
            self.note(change)

    def move_to_page(self, store: Store, sequence: int, kept_days: int) -> None:
        """Move recent changes to a page if they are many, and forget pages past their retention.

        Must be called before the snapshot of that sequence is saved. Raises StorageError.
        """
        if len(self.recent) > _CHANGES_IN_STATE_MAX or self.bytes > _BYTES_IN_STATE_MAX:
            page = WrittenPage(self.recent[0].seq, self.last, self._newest_ms(), sequence)
            expires_us = (page.newest_ms + kept_days * _DAY_MS) * 1000
            body = msgspec.msgpack.encode(self.recent)
            store.save_page(body, version=PAGE_VERSION, sequence=sequence, expires_us=expires_us)
            self.pages.append(page)
            self.recent, self.bytes = [], 0
        oldest_ms = _oldest_ms(kept_days)
        self.pages = [page for page in self.pages if page.newest_ms >= oldest_ms]
        self.recent = [change for change in self.recent if change.made.time_ms >= oldest_ms]

    def _newest_ms(self) -> int:
        """The time of the newest change. It never decreases, so that pages expire in order."""
        earlier_ms = self.pages[-1].newest_ms if self.pages else 0
        return max(earlier_ms, *(change.made.time_ms for change in self.recent))

    def page(self, after: int, limit: int, read: Callable[[int], Page | None], kept_days: int) -> LoggedPage:
        """Return at most `limit` changes after a number. `read` reads pages. Raises StorageError."""
        oldest_ms = _oldest_ms(kept_days)
        wanted = (one for one in self._after(after, read) if one.made.time_ms >= oldest_ms)
        found = list(islice(wanted, limit))
        return LoggedPage(found, found[-1].seq if found else after)

    def _after(self, after: int, read: Callable[[int], Page | None]) -> Iterator[LoggedChange]:
        for written in self.pages:
            # A missing page has expired, or was damaged and reported when it was set aside.
            if written.last > after and (page := read(written.sequence)) is not None:
                yield from (one for one in _decode_page(page.body) if one.seq > after)
        yield from (one for one in self.recent if one.seq > after)


def _oldest_ms(kept_days: int) -> int:
    return time.time_ns() // 1_000_000 - kept_days * _DAY_MS
