"""The code that commits the outcome of one memory to the slice of the event, while rules are indexed."""

from typing import Any, Final

from engine.evaluation.kernel.code.access import Entry
from engine.evaluation.kernel.generated import function, indented
from engine.evaluation.slices.slices import Remembered

_COMMIT: Final = """\
 def commit(outcome, base, tick):
  slice = slices.slice
  {lines}
 return commit
"""


class _Commit(Entry):
    """Writes a memory in the slice that the event has entered; see `operators/interface.py`."""

    outcome = "outcome"
    now = "(base >> NUMBER_BITS)"

    def __init__(self, remembered: Remembered) -> None:
        admit = "slices.begin()" if remembered.slices.path else ""
        super().__init__(remembered, slice_="slice", place="place", blank="blank", admit=admit)
        self.constants: list[object] = []

    def constant(self, value: object) -> str:
        """Return the variable of a constant."""
        self.constants.append(value)
        return f"c{len(self.constants) - 1}"


def committing(remembered: Remembered) -> Any:
    """Return the function that writes an outcome of a memory: (outcome, base, tick)."""
    slices, to = remembered.slices, _Commit(remembered)
    lines = indented(remembered.memory.write(to), 2)
    given = {"slices": slices, "blank": slices.blank, "place": remembered.place, "remembered": remembered}
    numbered = [(f"c{number}", value) for number, value in enumerate(to.constants)]
    return function(_COMMIT.format(lines=lines), [*given.items(), *numbered])
