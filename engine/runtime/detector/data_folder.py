"""The data folder as a worker sees it, which may be another one than the service sees."""

from collections.abc import Callable

from engine.runtime.contract.settings import RuntimeSettings
from snapshots.data_folder.identity import check_identity
from snapshots.data_folder.mounts import mount_check
from snapshots.errors import StorageError
from snapshots.files import Files


class DataFolder:
    """The data folder of the settings, and the id that it is to have."""

    def __init__(
        self, settings: RuntimeSettings, files: Files, check_mount: Callable[[], object] | None = None
    ) -> None:
        self._path = settings.data
        self._folder_id = settings.folder_id
        self._files = files
        self._check_mount = check_mount or mount_check(settings.data, files)

    def check(self) -> None:
        """Raise WrongFolder if it is another one, and StorageError if that cannot be known."""
        if self._folder_id is None:
            return
        try:
            check_identity(self._path, self._folder_id, self._files)
            self._check_mount()
        except OSError as error:
            raise StorageError(f"{self._path} cannot be read: {error}") from error
