"""What a detector remembers: its memories, each in the slices of a path, and which rules read them."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from engine.evaluation.facts.values import Event
from engine.evaluation.operators.interface import Memory
from engine.evaluation.operators.table import remembering
from engine.evaluation.paths import ANY_BIRTH, Path
from engine.evaluation.requirements import Births, MemoryName, Use
from engine.evaluation.slices.bounds.eviction import NEAR_SHARE, NONE_EVICTED, Evicted, Eviction, Expiry
from engine.evaluation.slices.bounds.tracked import Keyed
from engine.evaluation.slices.readers import Reader
from engine.evaluation.slices.slices import SEEN, Remembered, Slices
from engine.language import condition as language
from engine.language.nodes import Node

SWEPT_FROM: Final = 1 << 14
"""Up to this many slices, those that have expired stay: a key that comes again then finds its slice."""

SETTLED_EVERY: Final = 32
"""After each so many events, the bounds are looked after even if none is passed."""


class Histories:
    """The memories of the rules of a detector, and the bounds on the slices that have them."""

    def __init__(self, live_max: int, bytes_max: int) -> None:
        self.live_max, self.bytes_max = live_max, bytes_max
        self.slices: dict[Path, Slices] = {}
        self.memories: dict[MemoryName, Remembered] = {}
        """All memories that rules read."""
        self.besides: list[Keyed] = []
        """What counts towards the bounds besides slices."""
        self.keyed_bytes = self.unkeyed_bytes = 0
        """The estimated sizes of the slices with keys, and of that without."""
        self.live = 0
        """How many slices with keys there are."""
        self.tracking = False
        """Whether slices log the keys of events, because a bound is near."""
        self.due = False
        """Whether a bound is passed, so that `settle` must be called after this event."""
        self._eviction = Eviction(self)
        self._expiries: dict[Path, Expiry] = {}

    def settle(self, now_us: int, tick: int) -> Evicted:
        """Hold the bounds after event `tick`, and count what was evicted before it had expired."""
        # While slices are tracked, eviction finds those that have expired.
        if not tick % SETTLED_EVERY and self.live > SWEPT_FROM and not self.tracking:
            for expiry in self._expiries.values():
                expiry.drop_some(now_us)
        self.due = False
        return self._eviction.hold(now_us) if self.tracking or self.reaches(NEAR_SHARE) else NONE_EVICTED

    def reaches(self, share: tuple[int, int]) -> bool:
        """Return whether there is more than a share of a bound."""
        part, whole = share
        return whole * self.live > part * self.live_max or whole * self.keyed_bytes > part * self.bytes_max

    def bound(self, part: Keyed) -> None:
        """Have entries that are no slices count towards the bounds, too."""
        self.besides.append(part)
        self._expiries[part.path] = Expiry(part)

    def renew(self) -> None:
        """Track all anew, if a bound is near: call this where something is dropped that no event dropped."""
        self._eviction.renew()

    def copy_from(self, other: "Histories", events: Sequence[Event]) -> None:
        """Copy the slices of some events from histories that have these memories, and maybe more."""
        by_path: dict[Path, list[tuple[Remembered, Remembered]]] = {}
        for name, ours in self.memories.items():
            by_path.setdefault(name.path, []).append((other.memories[name], ours))
        for path, pairs in by_path.items():
            slices, mine = other.slices[path], self.slices[path]
            keys = {slices.key_at(fields, sent or {}) for fields, _, sent in events} if path else {()}
            for key in keys - {None}:
                slice_ = slices.find(key)
                if slice_ is None:
                    continue
                copied = mine.admit(key) if path else mine.root
                copied[SEEN] = slice_[SEEN]
                for theirs, ours in pairs:
                    entry = slices.kept_in(slice_, theirs)
                    if entry != theirs.blank:
                        mine.restore(copied, ours, theirs.memory.copy(entry))

    @property
    def bytes(self) -> int:
        """The estimated size of all slices."""
        return self.keyed_bytes + self.unkeyed_bytes

    def weigh(self, more_bytes: int, more_slices: int = 0) -> None:
        """Count more bytes, and more slices with keys."""
        self.keyed_bytes += more_bytes
        self.live += more_slices
        if self.keyed_bytes > self.bytes_max or self.live > self.live_max:
            self.due = True

    def _weigh_unkeyed(self, more_bytes: int) -> None:
        self.unkeyed_bytes += more_bytes

    def of(self, node: Node, path: Path, birth: int) -> Remembered:
        """Return the memory that a node of a rule reads, while the rule uses it."""
        return self.remembered(remembering(node).memory(node), path, birth)

    def remembered(self, memory: Memory, path: Path, birth: int) -> Remembered:
        """Return a memory that rules of a birth use."""
        found = self.memories.get(MemoryName(memory, path, ANY_BIRTH))
        return self.memories[MemoryName(memory, path, birth)] if found is None else found

    def acquire(self, use: Use) -> Remembered:
        """Have a part of a new rule remembered from now on."""
        node, path, births, operator, name, nodes, _ = use
        remembered = self.memories.get(name)
        if remembered is None:
            if path not in self.slices:
                self.slices[path] = Slices(path, self.weigh if path else self._weigh_unkeyed)
                if path:
                    self._expiries[path] = Expiry(self.slices[path])
            remembered = self.slices[path].remember(name.memory, node, births.born)
            remembered.nodes = nodes
            self.memories[name] = remembered
        remembered.read_by(_reader(use))
        remembered.keep = max(remembered.keep, operator.keep(node))
        return remembered

    def release(self, use: Use) -> None:
        """Undo `acquire`. Drop the memory if nobody uses it any more."""
        path, name = use.path, use.name
        remembered = self.memories[name]
        self._eviction.renew()
        if not remembered.read_no_more(_reader(use)):
            return
        del self.memories[name]
        slices = self.slices[path]
        slices.forget(remembered)
        if not slices.memories:
            del self.slices[path]
            self._expiries.pop(path, None)


def _reader(use: Use) -> Reader:
    return Reader(use.operator.window_us(use.node), use.births.born, use.operator.only_next)


class Site(NamedTuple):
    """The history of a rule: the memories of its detector, and when it began."""

    histories: Histories
    births: Births

    @property
    def birth(self) -> int:
        """How many events its detector had seen before."""
        return self.births.birth

    @property
    def born(self) -> int:
        """The stamp of the last of them."""
        return self.births.born

    def of(self, node: Node, path: Path) -> "Site":
        """Return the history of all that is inside a part."""
        return self._replace(births=self.births.of(node, path)) if self.births.kept else self

    def of_where(self, keyed: language.Keyed, path: Path) -> "Site":
        """Return the history of all that is inside the `where` of a key."""
        return self._replace(births=self.births.of_where(keyed, path)) if self.births.kept else self

    def memory(self, node: Node, path: Path) -> Remembered:
        """Return the memory that a part reads."""
        return self.histories.of(node, path, self.births.of(node, path).birth)
