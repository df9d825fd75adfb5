"""What rules of one birth read of a memory that rules of several births share.

A memory holds the time of the latest event that decides, so that time alone tells what came before a birth.
The latest such event is the best one, and hides no other that counts for the rule.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.evaluation.state.slices import Store


@dataclass(slots=True)
class View:
    """A memory, of which only times later than `since_us` count."""

    store: "Store"
    since_us: int
