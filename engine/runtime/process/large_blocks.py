"""How glibc allocates large blocks: on pages of their own, so that growing one copies nothing."""

import contextlib
import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""Of `mallopt`, from glibc's malloc.h."""

_LARGE_BYTES: Final = 2 * 1024 * 1024
_FREE_BYTES_KEPT: Final = 64 * 1024 * 1024
"""What glibc itself comes to once it has freed large blocks."""


def map_large_blocks() -> None:
    """Keep large blocks mapped, for a process that holds arrays over very many keys.

    By default glibc puts ever larger blocks on its heap once it has freed a large one. An array that grows
    there is copied: at a million keys several arrays of 6 MiB in one event, which takes 10 to 15 ms instead
    of less than 3. Does nothing with another C library.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _FREE_BYTES_KEPT)
