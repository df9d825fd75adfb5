"""The C library's allocator, told to give large blocks back to the system."""

import contextlib
import ctypes
from typing import Final

_MMAP_THRESHOLD: Final = -3
_TRIM_THRESHOLD: Final = -1
"""Numbers of parameters, as glibc's malloc.h has them."""

_LARGE_BYTES: Final = 256 * 1024
_TOP_BYTES: Final = 16 * 1024 * 1024


def trim() -> None:
    """Give all pages back that hold nothing. Takes some 10 ms for each 100 MiB of them."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def return_large_blocks() -> None:
    """Have each block of 256 KiB or more be a mapping of its own, which goes back when it is freed.

    glibc raises that bound with each large block that is freed, up to 32 MiB. From then on large bodies come
    from the heap, of which only the top ever goes back: a front end that had read many at once kept their
    memory for good. Other C libraries are left as they are.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        # To set one bound fixes the other, too, and its default would have the top go back and forth.
        mallopt(_TRIM_THRESHOLD, _TOP_BYTES)
