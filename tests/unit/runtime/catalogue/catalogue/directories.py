"""Directories that the tests open."""

from contextlib import contextmanager

from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.contract.settings import RuntimeSettings

A, B, C, D = "a" * 32, "b" * 32, "c" * 32, "d" * 32


@contextmanager
def opened_with(data, files):
    directory = Catalogue(RuntimeSettings(data=data, snapshots_kept=2, lock_wait_s=0), files=files)
    directory.open()
    try:
        yield directory
    finally:
        directory.close()


def told(directory):
    changes = directory.changes(0, 0)
    return changes.tokens.whole, changes.detectors.whole


def expecting(data, folder_id, files=None):
    return Catalogue(
        RuntimeSettings(data=data, snapshots_kept=2, lock_wait_s=0, folder_id=folder_id), files=files
    )
