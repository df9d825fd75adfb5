"""Records whose entries, times or values, are counted: with enough of them, events meet the bucket."""

from abc import abstractmethod
from collections.abc import Iterable, Sized
from typing import Any, TypeVar

from engine.evaluation.memory import FOREVER, NEVER
from engine.evaluation.state.storage.columns import ColumnTable
from engine.evaluation.state.storage.records import Records

R = TypeVar("R", bound=Sized)


class Entries(Records[R]):
    """A record of entries for each slot.

    A comparison that needs some entries to be true is false in every slice with fewer. So only events of
    slices with at least `needed` entries, expired or not, meet the bucket.
    """

    __slots__ = ("most", "needed")

    def __init__(
        self, table: ColumnTable, window_us: int | None, rows: tuple[Any, int], most: int, needed: int
    ) -> None:
        super().__init__(table, window_us, *rows)
        self.most = most
        self.needed = needed

    @abstractmethod
    def nth(self, slot: int, number: int) -> int:
        """Return the time of the entry of this number, counted back from the latest as 1, or NEVER."""

    def earliest_us(self, slot: int) -> int:
        """Return the earliest time among as many latest entries as are needed, or FOREVER without any."""
        record = self.record(slot)
        return FOREVER if record is None else self.nth(slot, min(len(record), self.most))

    def triggers_at(self, slot: int) -> bool:
        """Return whether the events of a slot meet the bucket, if the column is paged."""
        return (self.at(slot) if self.needed == 1 else self.nth(slot, self.needed)) != NEVER

    def _grown(self, slot: int) -> None:
        """Record that an object has as many entries as are needed, from now on."""
        if self.bucket is not None and self.few is not None:
            self.table.start_triggering(slot, self)

    def _triggering_slots(self) -> Iterable[int]:
        if self.needed == 1 or self.few is None:
            return super()._triggering_slots()
        return [slot for slot, record in self.long.items() if len(record) >= self.needed]

    def _triggers_many(self, record: R) -> bool:
        """Return whether the slot of an object triggers because it has several entries."""
        return 1 < self.needed <= len(record) and self.bucket is not None and self.few is not None

    def _drop_record(self, slot: int) -> None:
        record = self.long.get(slot)
        if record is not None and self._triggers_many(record):
            self.table.stop_triggering(slot, self)
        super()._drop_record(slot)

    def _to_pages(self, few: dict[int, int]) -> None:
        if self.needed > 1 and self.bucket is not None:
            for slot in self._triggering_slots():
                self.table.stop_triggering(slot, self)
        super()._to_pages(few)
