"""The resources of this process: memory, CPU, and since when it runs."""

import os
import resource
import socket
import time
from typing import Final

_STARTED_MS: Final = time.time_ns() // 1_000_000
"""When this module was imported, right at the start of every process."""

_LINE_BYTES: Final = 200


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Each passivation asks, and a file object takes longer.
            pages = int(os.read(descriptor, _LINE_BYTES).split()[1])
        finally:
            os.close(descriptor)
    except (OSError, IndexError, ValueError):
        # Without /proc, the peak is the best estimate.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


def usage() -> tuple[int, str, int, int, float]:
    """Return pid, host name, start in milliseconds since 1970, resident bytes and seconds of CPU time."""
    return os.getpid(), socket.gethostname(), _STARTED_MS, resident_bytes(), time.process_time()
