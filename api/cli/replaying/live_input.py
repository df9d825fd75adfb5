"""Standard input that may be a live pipe; reports when it is idle."""

import io
import os
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

IDLE_S: Final = 0.2
"""A pipe is idle after this long without data."""


class LiveInput(io.RawIOBase):
    """The bytes of a file descriptor. Calls `on_idle` once each time a read waits longer than IDLE_S.

    An exception from `on_idle` ends the read.
    """

    def __init__(self, descriptor: int, on_idle: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_idle = on_idle

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int | None:
        """Read the available bytes, or wait for some."""
        if not select.select([self._descriptor], [], [], IDLE_S)[0]:
            self._on_idle()
        return os.readv(self._descriptor, [buffer])
