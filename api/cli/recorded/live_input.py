"""Standard input that may be a live pipe: somebody is told when it falls silent."""

import io
import os
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

IDLE_S: Final = 0.2
"""A pipe is idle when nothing has come for so long."""


class LiveInput(io.RawIOBase):
    """The bytes of a file descriptor. Calls `on_idle` once each time that a read has to wait for IDLE_S.

    What `on_idle` raises ends the read.
    """

    def __init__(self, descriptor: int, on_idle: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_idle = on_idle

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int | None:
        """Read what is there, or wait for it."""
        if not select.select([self._descriptor], [], [], IDLE_S)[0]:
            self._on_idle()
        return os.readv(self._descriptor, [buffer])
