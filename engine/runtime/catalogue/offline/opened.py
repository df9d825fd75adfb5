"""The directory of a data folder that no service uses."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.catalogue_settings import CatalogueSettings
from engine.runtime.catalogue.tokens import MintedToken, mint
from engine.runtime.contract.change_log import Made
from snapshots.data_folder.identity import begin_folder


@contextmanager
def opened_offline(data: Path) -> Iterator[Catalogue]:
    """Open the directory of a data folder that no service uses, for the duration of the context.

    Creates the folder if it is missing. Raises FolderInUse at once if a service uses it.
    """
    folder_id = begin_folder(data)
    directory = Catalogue(CatalogueSettings(data, snapshots_kept=3, lock_wait_s=0, folder_id=folder_id))
    directory.open()
    try:
        yield directory
    finally:
        directory.close()


def mint_offline(data: Path) -> MintedToken:
    """Mint a token in a data folder that no service uses. Raises FolderInUse, StorageError."""
    minted = mint()
    with opened_offline(data) as directory:
        directory.add_token(minted.id, minted.stored, Made.now())
    return minted
