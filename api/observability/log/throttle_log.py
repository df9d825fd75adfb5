"""A log line about requests that were refused: at most one in ten seconds, with their number by cause."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from api.observability.log.logs import FIELDS

INTERVAL_S: Final = 10.0

_log = logging.getLogger("rule_detector.requests")


class ThrottleLog:
    """Collects refusals, and logs them at most once in INTERVAL_S."""

    def __init__(
        self, message: str, causes: Sequence[str], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`causes` are in the order of the line's fields."""
        self._message = message
        self._causes = causes
        self._now_s = now_s
        self._said_s = -math.inf
        self._unsaid: Counter[str] = Counter()

    def note(self, causes: Counter[str]) -> None:
        """Add refusals by cause, and log all that are not logged yet if it is time. Call it regularly."""
        self._unsaid += causes
        now_s = self._now_s()
        if not self._unsaid or now_s - self._said_s < INTERVAL_S:
            return
        self._said_s = now_s
        by_cause = {cause: self._unsaid[cause] for cause in self._causes if self._unsaid[cause]}
        fields = {"count": self._unsaid.total(), **by_cause}
        self._unsaid = Counter()
        _log.warning("%s", self._message, extra={FIELDS: fields})
