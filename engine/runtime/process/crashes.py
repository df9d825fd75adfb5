"""Crash reports of this process."""

import contextlib
import faulthandler


def crashes_to(descriptor: int | None) -> None:
    """Direct the report of a segmentation fault, an abort and the like to an open file; None: standard error.

    Does nothing if standard error cannot be written to.
    """
    faulthandler.disable()
    if descriptor is not None:
        faulthandler.enable(descriptor)
        return
    # Standard error may be closed, or replaced by a Python object.
    with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
        faulthandler.enable()
