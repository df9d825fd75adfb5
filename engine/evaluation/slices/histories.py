"""The memories of a detector, each in the slices of a path, and the rules that read them."""

from collections.abc import Iterable, Sequence

from engine.evaluation.facts.values import Event
from engine.evaluation.operators.interface import Memory
from engine.evaluation.operators.table import remembering
from engine.evaluation.paths import ANY_BIRTH, Path
from engine.evaluation.requirements import MemoryName, Use
from engine.evaluation.slices.bounds.eviction import Bounded, Expiry
from engine.evaluation.slices.slices import SEEN, Remembered, Slices
from engine.language.nodes import Node


class Histories(Bounded):
    """The memories of the rules of a detector, and the bounds on the slices that have them."""

    def __init__(self, live_max: int, bytes_max: int) -> None:
        super().__init__(live_max, bytes_max)
        self.memories: dict[MemoryName, Remembered] = {}
        """All memories that rules read, by name."""
        self.unkeyed_bytes = 0
        """The estimated size of the slice without keys."""

    def copy_from(self, other: "Histories", events: Sequence[Event]) -> None:
        """Copy the slices of some events from histories that have at least the same memories."""
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

    def _weigh_unkeyed(self, more_bytes: int) -> None:
        self.unkeyed_bytes += more_bytes

    def of(self, node: Node, path: Path, birth: int) -> Remembered:
        """Return the memory that a node of a rule reads, given its path and birth."""
        return self.remembered(remembering(node).memory(node), path, birth)

    def remembered(self, memory: Memory, path: Path, birth: int) -> Remembered:
        """Return a memory for a path and a birth, or for any birth."""
        found = self.memories.get(MemoryName(memory, path, ANY_BIRTH))
        return self.memories[MemoryName(memory, path, birth)] if found is None else found

    def acquire(self, use: Use) -> Remembered:
        """Add a reader of a memory, for a node of a new rule. Create the memory if necessary."""
        node, path, births, _, name, nodes, *_ = use
        remembered = self.memories.get(name)
        if remembered is None:
            if path not in self.slices:
                self.slices[path] = Slices(path, self.weigh if path else self._weigh_unkeyed)
                if path:
                    self._expiries[path] = Expiry(self.slices[path])
            remembered = self.slices[path].remember(name.memory, node, births.born)
            remembered.nodes = nodes
            self.memories[name] = remembered
        remembered.read_by(use)
        remembered.keep = max(remembered.keep, use.keep)
        return remembered

    def acquire_after(self, use: Use, before: Iterable[Use]) -> None:
        """Like `acquire`, for a changed rule: copy the state of one of its previous memories that serves."""
        is_new = use.name not in self.memories
        remembered = self.acquire(use)
        memory, slices = use.name.memory, self.slices[use.path]
        able = [one.name for one in before if (one.path, one.births.birth) == (use.path, use.births.birth)]
        old = next((self.memories[name] for name in able if is_new and name.memory.serves(memory)), None)
        if old is None:
            return
        for slice_ in slices.all():
            if entry := slices.kept_in(slice_, old):
                slices.restore(slice_, remembered, old.memory.entry_for(memory, entry))

    def release(self, use: Use) -> None:
        """Undo `acquire`. Drop the memory if it has no other reader."""
        path, name = use.path, use.name
        remembered = self.memories[name]
        self.renew()
        if not remembered.read_no_more(use):
            return
        del self.memories[name]
        slices = self.slices[path]
        slices.forget(remembered)
        if not slices.memories:
            del self.slices[path]
            self._expiries.pop(path, None)
