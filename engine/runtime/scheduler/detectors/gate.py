"""Whether requests for a detector are refused, and why."""

import asyncio

from engine.runtime.contract.errors import STARTING, DetectorUnavailable, no_such_detector, shutting_down


class Gate:
    """Admits requests for a detector until it is deleted or closed, or an activation fails."""

    def __init__(self, detector_id: str, retry_s: float) -> None:
        self._detector_id = detector_id
        self._retry_s = retry_s
        self._loop = asyncio.get_running_loop()
        self.deleted = False
        self.closing = False
        self._failure = ""
        self._refused_until_s = 0.0

    def check(self) -> None:
        """Raise Refusal 1200, and DetectorUnavailable 1501 or 1503, if requests are refused."""
        if self.deleted:
            raise no_such_detector(self._detector_id)
        if self.closing:
            raise shutting_down()
        if self.refuses_for_now:
            message = f"the detector cannot be activated now: {self._failure}"
            raise DetectorUnavailable(STARTING, message, self._retry_s)

    def refuse_for_now(self, reason: str) -> float:
        """Refuse requests for `retry_s`, with the reason for a failure; return until when."""
        self._failure = reason
        self._refused_until_s = self._loop.time() + self._retry_s
        return self._refused_until_s

    @property
    def refuses_for_now(self) -> bool:
        """Whether the last failure is too recent to try again."""
        return self._loop.time() < self._refused_until_s
