"""The code that commits the outcome of one memory to the slice of the event, while rules are indexed."""

from typing import Any, Final

from engine.evaluation.kernel.code.access import Entry
from engine.evaluation.kernel.code.generated import function, indented
from engine.evaluation.slices.slices import Remembered

_COMMIT: Final = """\
 def commit(outcome, base, tick):
  slice = slices.slice
  {lines}
 return commit
"""


class _Commit(Entry):
    """Writes a memory in the slice that the event has entered; see `operators/interface.py`."""

    stamp = "(base + tick)"
    outcome = "outcome"
    now = "(base >> NUMBER_BITS)"


def committing(remembered: Remembered) -> Any:
    """Return the function that writes an outcome of a memory: (outcome, base, tick)."""
    slices = remembered.slices
    admit = "slices.begin()" if slices.path else ""
    to = _Commit(remembered, slice_="slice", place="place", blank="blank", admit=admit)
    given = {"slices": slices, "blank": slices.blank, "place": remembered.place, "remembered": remembered}
    return function(_COMMIT.format(lines=indented(remembered.memory.write(to), 2)), given.items())
