"""Whether Ray still answers: asked again and again, by a thread that may be kept waiting."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

_ASK_S: Final = 1.0
"""Between two questions."""
_SILENT_S: Final = 3.0
"""An answer is late after so long."""

_STOPPED: Final = "ray does not answer: {} was stopped"
_SILENT: Final = "ray's control store does not answer"


class RayWatch:
    """Asks Ray's control store for a sign of life, once a second.

    `ask` comes back when there was one, and may raise or hang. `stopped` gives the names of processes of Ray
    that a signal has stopped.
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

    def start(self) -> None:
        """Begin to ask."""
        threading.Thread(target=self._run, name="ray watch", daemon=True).start()

    def end(self) -> None:
        """Ask no more."""
        self._ending.set()

    @property
    def silent_s(self) -> float:
        """For how long there has been no sign of life."""
        return self._now_s() - self._answered_at_s

    def trouble(self) -> str | None:
        """Say what is wrong with Ray; None while nothing is known to be. For any thread."""
        if stopped := self._stopped():
            return _STOPPED.format(" and ".join(stopped))
        return _SILENT if self.silent_s >= _SILENT_S else None

    def look(self) -> None:
        """Ask once."""
        try:
            self._ask()
        except Exception as error:  # noqa: BLE001 -- Ray raises a dozen kinds; none is a sign of life
            _log.debug("ray's control store did not answer: %s", error)
        else:
            self._answered_at_s = self._now_s()

    def _run(self) -> None:
        while not self._ending.wait(_ASK_S):
            self.look()
