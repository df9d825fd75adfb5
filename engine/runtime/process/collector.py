"""Tuning of Python's garbage collector for workers and front ends.

A detector of 100 000 rules consists of about a million objects, and a full collection of them pauses the
worker for a second. Reference counting frees almost everything; only errors make cycles. So the objects of a
large detector are frozen (`gc.freeze`) while it is active, and collected after it is gone.

The worker's own objects, mostly Ray's modules, stay frozen: collecting them takes forty times as long as
passivating a small detector. `gc.unfreeze` unfreezes everything, so a small detector is not frozen at all;
collections are so rare that they hardly ever meet one.

A front end holds some hundred thousand permanent objects, mostly modules, and a few hundred per running
request; the directory holds as many modules. By default that causes a collection every few requests, and now
and then a full one, which pauses all requests for a tenth of a second. Connections are cycles, so collections
continue, limited to objects made since the start.
"""

import gc
import threading
from typing import Final

_YOUNG_OBJECTS: Final = 10_000
_YOUNG_ROUNDS: Final = 4
_OLD_ROUNDS: Final = 25_000
"""Thresholds of the three generations. Full collections become rare. One of the middle generation looks at
50 000 objects, which takes some 30 ms, and meanwhile no detector of the process is served. A detector that
meets a million new keys makes as many objects."""

_ENDED_OBJECTS: Final = 5_000
_ENDED_ROUNDS: Final = 5
"""The first two thresholds where many connections end: to free one takes several times as long as to look at
one that stays. Anybody can open and close them."""

_LARGE_OBJECTS: Final = 100_000
"""Collecting this many objects takes 10 ms."""

_LEFT_SMALL: Final = 15
"""How many small detectors may be gone before their garbage is collected."""


def collect_seldom() -> None:
    """Make collections rare, for a process that creates many objects but few cycles."""
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_ROUNDS, _OLD_ROUNDS)


def settle() -> None:
    """Freeze the permanent objects, for a front end, and collect often, so that each time takes some 10 ms.

    The threshold of the oldest generation stays: connections grow old before they end.
    """
    gc.collect()
    freeze_present()


def freeze_present() -> None:
    """Do as `settle` where there is no time to collect first, for a directory."""
    gc.freeze()
    gc.set_threshold(_ENDED_OBJECTS, _ENDED_ROUNDS)


class FrozenHeap:
    """The frozen objects of a worker: its own always, and a large detector while it is active alone.

    The garbage of a large detector is collected at once. Where detectors share the worker, a large one is
    taken apart before, and leaves little. The garbage of small ones is collected once more of them are gone
    than `_LEFT_SMALL`, and than are active. A collection visits the active ones, too: it takes 0.2 ms for
    each that shares a worker, and at least 0.07 ms.
    """

    def __init__(self, detectors: int = 1) -> None:
        """Freeze the worker's own objects. `detectors` may be active at once."""
        self._shared = detectors > 1
        self._large = False
        self._active = self._left = 0
        self._lock = threading.Lock()
        gc.freeze()

    def activated(self) -> None:
        """Freeze an activated detector if it is large."""
        with self._lock:
            self._active += 1
        if not self._shared:
            # Listing the objects takes as long as compiling a small detector, so estimate first.
            self._large = _objects_at_most() > _LARGE_OBJECTS and len(gc.get_objects()) > _LARGE_OBJECTS
            if self._large:
                gc.freeze()

    @property
    def holds_many(self) -> bool:
        """Whether `gone` may take long."""
        return self._large or self._shared

    def gone(self) -> None:
        """Collect the garbage of a detector that has left, and freeze the rest.

        The next collection then has little to do. A worker is replaced after a number of activations, before
        its frozen garbage becomes large.
        """
        with self._lock:
            self._active -= 1
            self._left += 1
            if not self._large and self._left <= max(self._active, _LEFT_SMALL):
                return
            self._left = 0
        if self._large:
            self._large = False
            gc.unfreeze()
        gc.collect()
        if not self._shared:
            gc.freeze()


def _objects_at_most() -> int:
    """Return an upper estimate of the number of unfrozen objects, from the collector's counts."""
    new, young_rounds, old_rounds = gc.get_count()
    objects, rounds, _ = gc.get_threshold()
    return new + objects * (young_rounds + rounds * old_rounds)
