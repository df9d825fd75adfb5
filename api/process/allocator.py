"""Returning free memory of the C library's allocator to the system."""

import contextlib
import ctypes


def trim() -> None:
    """Return all free pages to the system; takes about 10 ms for each 100 MiB.

    glibc by itself returns only the top of its heap, so a front end that has read many large bodies at once
    would keep their memory. Other C libraries do not need this.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
