"""The folder of a directory before it is read: new where there is none, refused where it was lost."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from engine.runtime.catalogue.catalogue_state import CatalogueState, encode_state, state_version
from snapshots.errors import NothingUsable
from snapshots.files import Files, storage_errors
from snapshots.folders import create_folder, destroy_folder, is_unused

UNFINISHED_COPY: Final = "directory.unfinished"
"""The catalogue of a copy of a data folder that is not complete."""


def prepare_folder(data: Path, files: Files) -> None:
    """Initialize an unused folder. Raises NothingUsable if detectors exist but the catalogue is lost."""
    folder, detectors = data / "directory", data / "detectors"
    if UNFINISHED_COPY in files.names(data):
        raise NothingUsable(f"{data} holds a copy that was interrupted: remove it, and copy again")
    if not files.names(folder) and files.names(detectors):
        raise NothingUsable(f"{folder} is gone or empty, though there are detectors")
    if is_unused(folder, files):
        _refuse_lost_journal(folder, detectors, files)
        # An earlier initialization may not have finished.
        empty = CatalogueState()
        create_folder(folder, encode_state(empty), version=state_version(empty), files=files)
    # Folders created just before a crash may not be synced yet.
    with storage_errors(f"{data} cannot be synced"):
        files.sync_folder(data)


def delete_leftovers(detectors: Path, known: AbstractSet[str], files: Files) -> Iterator[str]:
    """Delete folders that no detector has and that are unused; yield what is wrong with the others."""
    for name in files.names(detectors):
        if name not in known:
            folder = detectors / name
            if is_unused(folder, files):
                destroy_folder(folder, files)
            else:
                yield f"{folder}: no detector of the catalogue has this folder; it is left as it is"


def _refuse_lost_journal(folder: Path, detectors: Path, files: Files) -> None:
    """Raise NothingUsable if a catalogue without a record has detectors that were used."""
    for name in files.names(detectors):
        if not is_unused(detectors / name, files):
            raise NothingUsable(
                f"{folder} has lost its journal: it names no detector, and {detectors / name} was used"
            )
