"""Whatever a crash leaves of a service's folders, nothing that its actors and directory answered is lost."""

import random

import pytest

from engine.runtime.catalogue import change_log
from snapshots.errors import StorageError
from tests.crash.model.history import Lost
from tests.crash.service.planted_defects import SERVICE_DEFECTS
from tests.crash.service.service_images import RUNS, ServiceImages


@pytest.fixture(autouse=True)
def _a_few_changes_make_a_page_of_the_log(monkeypatch):
    monkeypatch.setattr(change_log, "_BYTES_IN_STATE_MAX", 500)


@pytest.mark.storm
@pytest.mark.parametrize("sync", ["always", "interval"])
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_every_crash_image_of_a_service_has_what_was_answered(run, sync, seed, record_property):
    images = ServiceImages(5, random.Random(seed))
    images.of(run, sync)
    record_property("examples", images.different)
    assert images.moments > 50
    assert images.different > 60


@pytest.mark.storm
@pytest.mark.parametrize("defect", SERVICE_DEFECTS.values(), ids=SERVICE_DEFECTS)
def test_a_defect_in_the_service_is_noticed(defect):
    with defect.planted(), pytest.raises((Lost, StorageError)):
        defect.noticed_by()
