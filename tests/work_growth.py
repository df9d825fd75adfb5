"""Measures how the work of a function grows with its input, in processor time of its thread.

The processor time of the process is counted in coarse steps while a timer of it runs, as in tests.mutation.
"""

import gc
from collections.abc import Callable
from time import thread_time

_TIMES = 4
_TRIES = 5
GROWTH_MAX = 8.0
"""For four times the input, linear work takes four times as long, quadratic work sixteen times."""


def grows_linearly(work: Callable[[int], object], size: int) -> bool:
    """Return whether `work(4 * size)` takes little more than four times as long as `work(size)`.

    Takes the minimum of several tries for each, because a busy machine makes both slower at random.
    """
    small = large = float("inf")
    # Garbage collection would take longer the more objects other tests have left.
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
