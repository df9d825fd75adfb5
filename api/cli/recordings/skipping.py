"""Lines of a recording that cannot be read: skipped and counted, with a sample of each kind shown."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from api.cli.messages import CommandError, counted
from engine.language.diagnostics import quoted

SHOWN_MAX: Final = 3
"""The number of lines of each kind that are shown."""

HOPELESS: Final = 100
"""After so many unreadable lines and no readable one, the file is no recording."""

UNMATCHED: Final = "without a match of the pattern"


class RecordingError(CommandError):
    """A recording cannot be read, or not further; the message names file and line."""


class Skipping:
    """The skipped lines of one recording.

    `tell` receives the first lines of each kind at once, because a live pipe may never end. If `strict`, no
    line is skipped.
    """

    def __init__(
        self, name: str, tell: Callable[[str], None], *, strict: bool = False, hopeless: int = HOPELESS
    ) -> None:
        self.name = name
        """The name of the recording, for messages."""
        self.tell = tell
        self._strict = strict
        self._hopeless = hopeless
        self.counts = Counter[str]()
        self.has_events = False
        """Whether any line was an event; set by the reader."""
        self._first: str | None = None

    def skip(self, line: int, kind: str, reason: str, hint: str = "", text: str | None = None) -> None:
        """Skip an unreadable line. Raises RecordingError if the recording cannot be read further."""
        said = f"{self.name}, line {line}: {reason}{hint}"
        self._first = self._first or said
        failed = self.counts.total() - self.counts[UNMATCHED] + 1
        if self._strict or (not self.has_events and failed >= self._hopeless):
            raise RecordingError(said if failed == 1 or self.has_events else self._first)
        self._count(kind, said, text)

    def skip_unmatched(self, line: int, text: str) -> None:
        """Skip a line that does not match the pattern, which need not be an event."""
        self._count(UNMATCHED, f"{self.name}, line {line}: no match of the pattern", text)

    def report(self) -> None:
        """Report how many lines were skipped. Raises RecordingError if no line could be read."""
        if self._first is not None and not self.has_events:
            raise RecordingError(self._first)
        if len(self.counts) == 1:
            [(kind, times)] = self.counts.items()
            self.tell(f"{self.name}: skipped {counted(times, 'line')} {kind}")
        elif self.counts:
            kinds = ", ".join(f"{times} {kind}" for kind, times in self.counts.items())
            self.tell(f"{self.name}: skipped {counted(self.counts.total(), 'line')}: {kinds}")

    def _count(self, kind: str, said: str, text: str | None) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= SHOWN_MAX:
            self.tell(f"{said}; skipped{'' if text is None else f': {quoted(text)}'}")
