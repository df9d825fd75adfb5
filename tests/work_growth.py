"""Measures how the work of a function grows with its input, in processor time of its thread.

That of the process is counted in coarse steps while a timer of its processor time runs, as of tests.mutation.
"""

import gc
from collections.abc import Callable
from time import thread_time

_TIMES = 4
_TRIES = 5
GROWTH_MAX = 8.0
"""Four times the input is four times the work where that is linear, sixteen times where it is quadratic."""


def grows_linearly(work: Callable[[int], object], size: int) -> bool:
    """Return whether `work(4 * size)` takes little more than four times the time of `work(size)`.

    The least of some tries is taken of each, since a machine that is busy makes both slower by chance.
    """
    small = large = float("inf")
    # Collections would take the longer, the more objects other tests have left.
    gc.disable()
    try:
        for _ in range(_TRIES):
            small = min(small, _seconds(work, size))
            large = min(large, _seconds(work, _TIMES * size))
            if large <= GROWTH_MAX * small:
                return True
        return False
    finally:
        gc.enable()


def _seconds(work: Callable[[int], object], size: int) -> float:
    start = thread_time()
    work(size)
    return thread_time() - start
