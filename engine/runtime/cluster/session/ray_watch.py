"""Watches whether Ray answers, from a thread that may block."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

_ASK_S: Final = 1.0
"""The interval between two queries."""
_SILENT_S: Final = 3.0
"""After this long without an answer, Ray counts as silent."""

_STOPPED: Final = "ray does not answer: {} was stopped"
_SILENT: Final = "ray's control store does not answer"


class RayGoneError(Exception):
    """This process cannot use its Ray ever again."""


class RayWatch:
    """Queries Ray's control store once a second.

    `ask` returns if there was an answer, and may raise or hang; RayGoneError says that none will come.
    `stopped` returns the names of Ray's processes that a signal has stopped.
    """

    def __init__(
        self,
        ask: Callable[[], object],
        stopped: Callable[[], list[str]],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._stopped = stopped
        self._now_s = now_s
        self._answered_at_s = now_s()
        self._ending = threading.Event()
        self.gone: str | None = None
        """Why this process cannot use its Ray ever again; None while it may."""

    def start(self) -> None:
        """Start querying."""
        threading.Thread(target=self._run, name="ray watch", daemon=True).start()

    def end(self) -> None:
        """Stop querying."""
        self._ending.set()

    @property
    def silent_s(self) -> float:
        """The time since the last answer."""
        return self._now_s() - self._answered_at_s

    def problem(self) -> str | None:
        """Return what is wrong with Ray; None if nothing is known to be. Callable from any thread."""
        if stopped := self._stopped():
            return _STOPPED.format(" and ".join(stopped))
        return _SILENT if self.silent_s >= _SILENT_S else None

    def look(self) -> None:
        """Query once."""
        try:
            self._ask()
        except RayGoneError as error:
            self.gone = str(error)
        except Exception as error:  # noqa: BLE001 -- Ray raises a dozen kinds; none is a sign of life
            _log.debug("ray's control store did not answer: %s", error)
        else:
            self._answered_at_s = self._now_s()

    def _run(self) -> None:
        while not self._ending.wait(_ASK_S):
            self.look()
