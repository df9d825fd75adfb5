"""Where the history of a rule is remembered."""

from typing import NamedTuple

from engine.evaluation.births import Births
from engine.evaluation.paths import Path
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.slices import Remembered
from engine.language.condition import Keyed
from engine.language.nodes import Node


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

    def of_where(self, keyed: Keyed, path: Path) -> "Site":
        """Return the history of all that is inside the `where` of a key."""
        return self._replace(births=self.births.of_where(keyed, path)) if self.births.kept else self

    def memory(self, node: Node, path: Path) -> Remembered:
        """Return the memory that a part reads."""
        return self.histories.of(node, path, self.births.of(node, path).birth)
