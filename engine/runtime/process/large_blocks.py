"""Makes glibc allocate large blocks by mmap, so that growing one copies nothing."""

import contextlib
import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""The parameter's number for `mallopt`, from glibc's malloc.h."""

_LARGE_BYTES: Final = 2 * 1024 * 1024
_FREE_BYTES_KEPT: Final = 64 * 1024 * 1024
"""The value that glibc itself adapts to once large blocks have been freed."""


def map_large_blocks() -> None:
    """Allocate large blocks by mmap, for a process that holds arrays over very many keys.

    By default, once a large block was freed, glibc allocates ever larger blocks on its heap. An array that
    grows there is copied. At a million keys, one event may grow several arrays of 6 MiB: that takes 10 to 15
    ms on the heap, and less than 3 with mmap. Does nothing with another C library.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _FREE_BYTES_KEPT)
