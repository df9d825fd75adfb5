"""Which slots of a key table are free."""

from array import array

from engine.evaluation.state.storage.pages import IN_PAGE, PAGE_BITS, PAGE_SLOTS


class FreeSlots:
    """The free slots by page. Those of the lowest pages are taken first."""

    __slots__ = ("_roomy", "room", "taken")

    def __init__(self) -> None:
        self.taken = bytearray()
        """For each slot, whether it has a key. The integers of a list of free slots would be scattered over
        memory, and prevent it from being freed."""
        self.room = array("q")
        """For each page, the number of free slots."""
        self._roomy = bytearray()
        """For each page, whether it has a free slot."""

    def restore(self, taken: bytearray) -> None:
        """Restore for each slot whether it has a key."""
        self.taken = taken
        pages = range(0, len(taken), PAGE_SLOTS)
        self.room = array("q", (taken.count(0, first, first + PAGE_SLOTS) for first in pages))
        self._roomy = bytearray(map(bool, self.room))

    def take(self) -> int:
        """Take a free slot of the lowest page, so that the highest pages become empty and can be freed.

        If none is free, take a new one behind all others.
        """
        page = self._roomy.find(1)
        if page < 0:
            slot = len(self.taken)
            self.taken.append(1)
            if not slot & IN_PAGE:
                self.room.append(0)
                self._roomy.append(0)
            return slot
        self.room[page] -= 1
        if not self.room[page]:
            self._roomy[page] = 0
        slot = self.taken.index(0, page << PAGE_BITS)
        self.taken[slot] = 1
        return slot

    def free(self, slot: int) -> None:
        """Free a slot."""
        page = slot >> PAGE_BITS
        self.taken[slot] = 0
        self.room[page] += 1
        self._roomy[page] = 1

    def drop_page(self, page: int) -> None:
        """Drop the last page, which is free."""
        del self.room[page], self._roomy[page], self.taken[page << PAGE_BITS :]
