"""A directory in a folder of its own, with files that can fail."""

import pytest

from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.contract.settings import RuntimeSettings
from tests.faulty_files import FaultyFiles


@pytest.fixture
def files():
    return FaultyFiles()


@pytest.fixture
def opened(tmp_path, files):
    directories = []

    def opened() -> Catalogue:
        for directory in directories:
            directory.close()
        directory = Catalogue(RuntimeSettings(data=tmp_path, snapshots_kept=2, lock_wait_s=0), files=files)
        directories.append(directory)
        directory.open()
        return directory

    yield opened
    for directory in directories:
        directory.close()
