"""Checks that a worker sees the same data folder as the service."""

from collections.abc import Callable

from engine.runtime.contract.settings import RuntimeSettings
from snapshots.data_folder.identity import check_identity
from snapshots.errors import StorageError
from snapshots.files import Files


def check_data_folder(settings: RuntimeSettings, files: Files, check_mount: Callable[[], object]) -> None:
    """Raise WrongFolder unless it is the folder of the settings, and StorageError if that is not known."""
    if settings.folder_id is None:
        return
    try:
        check_identity(settings.data, settings.folder_id, files)
        check_mount()
    except OSError as error:
        raise StorageError(f"{settings.data} cannot be read: {error}") from error
