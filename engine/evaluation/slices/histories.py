"""What a detector remembers: its memories, each in the slices of a path, and which rules read them."""

from typing import Final, NamedTuple

from engine.evaluation.operators.interface import Memory
from engine.evaluation.operators.table import operator_of
from engine.evaluation.paths import Filter, Path
from engine.evaluation.slices.slices import Remembered, Slices
from engine.language.condition import Condition, walk

ANY_BIRTH: Final = -1


class MemoryName(NamedTuple):
    """A memory under a path of keys, for rules of one birth, or of any."""

    memory: Memory
    path: Path
    birth: int


class Histories:
    """The memories of the rules of a detector."""

    def __init__(self) -> None:
        self.slices: dict[Path, Slices] = {}
        self._remembered: dict[MemoryName, Remembered] = {}
        self._users: dict[MemoryName, int] = {}

    def of(self, node: Condition, path: Path, birth: int) -> Remembered:
        """Return the memory that a node of a rule reads, while the rule uses it."""
        return self._remembered[_name_of_node(node, path, birth)]

    def remembered(self, memory: Memory, path: Path, birth: int) -> Remembered:
        """Return a memory that rules of a birth use."""
        return self._remembered[name_of(memory, path, birth)]

    def acquire(self, node: Condition, path: Path, birth: int) -> None:
        """Have a node of a new rule remembered from now on."""
        name = _name_of_node(node, path, birth)
        if name not in self._users:
            if path not in self.slices:
                self.slices[path] = Slices(path)
            self._remembered[name] = self.slices[path].remember(name.memory)
            self._users[name] = 0
        self._users[name] += 1
        operator, remembered = operator_of(node), self._remembered[name]
        assert operator is not None, node
        remembered.keep = max(remembered.keep, operator.keep(node))

    def release(self, node: Condition, path: Path, birth: int) -> Remembered | None:
        """Undo `acquire`. Drop and return the memory if nobody uses it any more."""
        name = _name_of_node(node, path, birth)
        self._users[name] -= 1
        if self._users[name]:
            return None
        del self._users[name]
        slices, remembered = self.slices[path], self._remembered.pop(name)
        slices.forget(remembered)
        if not slices.memories:
            del self.slices[path]
        return remembered


def _name_of_node(node: Condition, path: Path, birth: int) -> MemoryName:
    operator = operator_of(node)
    assert operator is not None, node
    return name_of(operator.memory(node), path, birth)


def name_of(memory: Memory, path: Path, birth: int) -> MemoryName:
    """Return the name of a memory for rules of a birth."""
    return MemoryName(memory, path, ANY_BIRTH if _is_shared(memory, path) else birth)


def _is_shared(memory: Memory, path: Path) -> bool:
    """Return whether rules of all births share a memory: its operands and its slices are the same for all."""
    return (
        memory.splits
        and not any(operator_of(node) for operand in memory.operands for node, _ in walk(operand))
        and not any(isinstance(step, Filter) and step.birth != ANY_BIRTH for step in path)
    )
