"""What a directory is told when it starts."""

import sys
from dataclasses import dataclass
from pathlib import Path


# Without slots, as RuntimeSettings: pickled by the names of the fields.
@dataclass(frozen=True)
class CatalogueSettings:
    """The settings of a directory."""

    data: Path
    snapshots_kept: int
    lock_wait_s: float
    service_pid: int | None = None
    """The process id that the folder's lock names; None for the directory's own."""
    service_host: str = ""
    """The machine of that process; empty for the directory's own."""
    folder_id: str | None = None
    """The id that the data folder must have; None accepts any."""
    cluster: str = ""
    """The cluster in which this directory may succeed another one that still holds the lock."""
    detectors_max: int = sys.maxsize
    tokens_max: int = sys.maxsize
    changes_kept_days: int = 90
