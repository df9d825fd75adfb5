"""Where the history of a rule is remembered."""

from typing import NamedTuple

from engine.evaluation.slices.histories import Histories


class Site(NamedTuple):
    """The history of a rule: the memories of its detector, and when it began."""

    histories: Histories
    birth: int
    """How many events its detector had seen before."""
    born: int
    """The stamp of the last of them."""
