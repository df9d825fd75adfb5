"""A crash of this process, described in a file as it happens."""

import contextlib
import faulthandler


def crashes_to(descriptor: int | None) -> None:
    """Have a segmentation fault, an abort and the like described in an open file; None: as usual again.

    As usual is on standard error, if this process has one that can be written to.
    """
    faulthandler.disable()
    if descriptor is not None:
        faulthandler.enable(descriptor)
        return
    # Standard error may be closed, or be something of Python's own.
    with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
        faulthandler.enable()
