"""Watches whether Ray answers, from threads that may block."""

import logging
import threading
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

_ASK_S: Final = 1.0
"""The interval between two queries, and between two ticks."""
_SILENT_S: Final = 3.0
"""After this long without an answer, Ray counts as silent."""

_STOPPED: Final = "ray does not answer: {} was stopped"
_SILENT: Final = "ray's control store does not answer"


class RayGoneError(Exception):
    """This process can never use its Ray again."""


class RayWatch:
    """Queries Ray's control store once a second.

    A second thread counts the seconds since the last answer. A clock would be wrong after this process itself
    was stopped or blocked, because it did not ask meanwhile. `ask` returns if there was an answer, and may
    raise or hang; RayGoneError says that none will ever come. `stopped` returns the names of Ray's processes
    that are stopped.
    """

    def __init__(self, ask: Callable[[], object], stopped: Callable[[], list[str]]) -> None:
        self._ask = ask
        self._stopped = stopped
        self._silent_ticks = 0
        self._stopped_ticks = 0
        self._ending = threading.Event()
        self.gone: str | None = None
        """Why this process can never use its Ray again; None while it may."""

    def start(self) -> None:
        for do, name in ((self.look, "ray watch"), (self.tick, "ray watch ticks")):
            threading.Thread(target=self._run, args=(do,), name=name, daemon=True).start()

    def end(self) -> None:
        self._ending.set()

    @property
    def silent_s(self) -> float:
        """The time since the last answer, not counting time in which this process was blocked.

        A stopped process of Ray counts as silence, even while the control store answers.
        """
        return max(self._silent_ticks, self._stopped_ticks) * _ASK_S

    def problem(self) -> str | None:
        """Return the known problem of Ray, None if there is none. Callable from any thread."""
        if stopped := self._stopped():
            return _STOPPED.format(" and ".join(stopped))
        return _SILENT if self.silent_s >= _SILENT_S else None

    def look(self) -> None:
        try:
            self._ask()
        except RayGoneError as error:
            self.gone = str(error)
        except Exception as error:  # noqa: BLE001 -- Ray raises a dozen kinds; none is a sign of life
            _log.debug("ray's control store did not answer: %s", error)
        else:
            self._silent_ticks = 0

    def tick(self) -> None:
        """Count one second without an answer."""
        self._silent_ticks += 1
        self._stopped_ticks = self._stopped_ticks + 1 if self._stopped() else 0

    def _run(self, do: Callable[[], None]) -> None:
        while not self._ending.wait(_ASK_S):
            do()
