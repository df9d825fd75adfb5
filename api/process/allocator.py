"""The C library's allocator, told to give memory back to the system."""

import contextlib
import ctypes


def trim() -> None:
    """Give back all pages that hold nothing, at some 10 ms for each 100 MiB of them.

    glibc gives back only the top of its heap by itself: a front end that had read many large bodies at once
    kept their memory for good. Other C libraries do without.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
