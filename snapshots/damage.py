"""What was found to be wrong with a file, for the log and for people."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that could not be used, or not to its end, by the name under which it is kept now, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"
