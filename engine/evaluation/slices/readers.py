"""The nodes that read a memory, and for how long its entries matter to them."""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from engine.evaluation.times import FOREVER


class Reader(NamedTuple):
    """How a node reads a memory."""

    window_us: int | None
    """For how long an entry matters; None: for ever."""
    born: int
    """The stamp up to which nothing matters."""
    only_next: bool
    """Whether an entry matters only at the next event of its slice."""


class Reach:
    """How long entries matter to some nodes, by when the rules of these were made."""

    def __init__(self, readers: Iterable[Reader]) -> None:
        ordered = sorted((born, FOREVER if window is None else window) for window, born, _ in readers)
        self.borns = [born for born, _ in ordered]
        self.longest_us = list(accumulate((window_us for _, window_us in ordered), max))

    def window_us(self, latest: int) -> int | None:
        """Return for how long an entry with this latest stamp matters; None if it matters to no node."""
        readers = bisect_left(self.borns, latest)
        return self.longest_us[readers - 1] if readers else None
