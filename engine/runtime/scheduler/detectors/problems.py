"""The known problems of detectors and their files, for the log and the status."""

import logging
from typing import Final

_log = logging.getLogger(__name__)

_LASTING_KEPT: Final = 100


class Problems:
    """The problems that are known. Each is logged once, when it becomes known."""

    def __init__(self) -> None:
        self.lasting: list[str] = []
        """The latest problems that cannot be undone, such as a damaged file."""
        self.current: dict[str, str] = {}
        """Why a detector cannot be activated or saved now, by its id."""

    def note(self, problem: str) -> None:
        """Add a problem that cannot be undone."""
        _log.error("%s", problem)
        self.lasting = [*self.lasting, problem][-_LASTING_KEPT:]

    def begin(self, detector_id: str, problem: str) -> None:
        """Note that a detector has a problem, in place of an earlier one."""
        problem = f"detector {detector_id}: {problem}"
        if self.current.get(detector_id) != problem:
            self.current[detector_id] = problem
            _log.error("%s", problem)

    def end(self, detector_id: str) -> None:
        """Note that a detector has no problem any more."""
        self.current.pop(detector_id, None)
