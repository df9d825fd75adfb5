"""The code that commits the outcome of one memory to the slice of the event, while rules are indexed."""

from typing import Any, Final

from engine.evaluation.kernel.code.generated import function, indented
from engine.evaluation.slices.remembered import Remembered
from engine.evaluation.slices.slices import MORE

_COMMIT: Final = """\
 def commit(outcome, base, tick):
  slice = slices.slice
  {lines}
 return commit
"""


class Committing:
    """Writes a memory in the slice that the event has entered; see `operators/interface.py`."""

    stamp = "(base + tick)"
    outcome = "outcome"
    memory = "remembered"
    now = "(base >> NUMBER_BITS)"

    def __init__(self, remembered: Remembered) -> None:
        self._remembered = remembered
        blank = "()" if remembered.memory.is_record else "NEVER"
        more = f"(slice[{MORE}] or NOTHING).get(place, {blank})"
        self.entry = "slice[place]" if remembered.has_place else more

    def put(self, value: str) -> list[str]:
        """Return the statements that make a value the entry, in a new slice if there is none."""
        lines = ["if slice is blank: slice = slices.slice = slices.admit(slices.key)"]
        if self._remembered.has_place:
            return [*lines, f"slice[place] = {value}"]
        return [*lines, f"if slice[{MORE}] is None: slice[{MORE}] = {{}}", f"slice[{MORE}][place] = {value}"]

    def clear(self) -> list[str]:
        """Return the statements that leave no entry."""
        if self._remembered.has_place:
            return ["slice[place] = NEVER"]
        return [f"if slice[{MORE}]: slice[{MORE}].pop(place, None)"]


def committing(remembered: Remembered) -> Any:
    """Return the function that writes an outcome of a memory: (outcome, base, tick)."""
    lines = remembered.memory.write(Committing(remembered))
    given = {
        "slices": remembered.slices,
        "blank": remembered.slices.blank,
        "place": remembered.place,
        "remembered": remembered,
    }
    return function(_COMMIT.format(lines=indented(lines, 2)), given.items())
