"""Whatever breaks, a recovery finds exactly what was answered, in order, or refuses the folder."""

import random
from collections.abc import Callable

import hypothesis
import pytest

from snapshots.errors import StorageError
from tests.crash.model.history import Lost
from tests.crash.service.detector_machine import DetectorMachine
from tests.crash.store.corruption import (
    Changed,
    ends_near_a_sector,
    folder_of_segments,
    long_folder,
    small_folder,
    worlds,
)
from tests.crash.store.crash_images import Images
from tests.crash.store.file_faults import FileFaults
from tests.crash.store.interleaving import (
    Interleavings,
    drawn,
    first_script,
    reader,
    second_script,
    switches,
    third_script,
)
from tests.crash.store.planted_defects import DEFECTS
from tests.crash.store.runs import RUNS
from tests.crash.store.store_machine import StoreMachine

TestStore = StoreMachine.TestCase
TestStore.settings = hypothesis.settings(
    max_examples=hypothesis.settings.default.max_examples, stateful_step_count=30, deadline=None
)

TestDetectors = DetectorMachine.TestCase
TestDetectors.settings = hypothesis.settings(
    max_examples=hypothesis.settings.default.max_examples // 2, stateful_step_count=50, deadline=None
)


@pytest.mark.storm
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_every_legal_crash_image_is_recovered(run, seed, record_property):
    images = Images(256, random.Random(seed), again=0.05)
    images.of(run)
    record_property("examples", images.images + images.within_recovery)
    assert images.different > 10


@pytest.mark.storm
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_every_file_call_may_fail_or_be_the_last(run, seed, record_property):
    faults = FileFaults(4, random.Random(seed))
    faults.of(run)
    record_property("examples", faults.faults)
    assert faults.faults > 100


@pytest.fixture
def some_bits(seed: int, scaled: Callable[[int], int]) -> Callable[[], list[int]]:
    """Draws bits of a byte: one of them, or all with the profile `deep`."""
    chance = random.Random(seed)
    return lambda: chance.sample(range(8), min(8, scaled(4)))


@pytest.mark.storm
@pytest.mark.parametrize(("folder", "matter_not"), [(small_folder, 100), (folder_of_segments, 0)])
def test_a_flipped_bit_of_any_byte_is_noticed_or_does_not_matter(
    folder, matter_not, some_bits, record_property
):
    changed = Changed()
    history, image = folder()
    changed.flip_bits(history, image, some_bits)
    record_property("examples", changed.changed)
    assert changed.exact >= matter_not
    assert changed.refused > 100


@pytest.mark.storm
def test_a_flipped_bit_of_a_record_at_the_end_of_a_sector_is_noticed(seed, some_bits, record_property):
    changed = Changed()
    for history, image in random.Random(seed).sample(list(ends_near_a_sector()), 10):
        changed.flip_bits(history, image, some_bits, last_bytes=62)
    record_property("examples", changed.changed)
    assert changed.exact == 0


def test_every_cut_yields_exactly_the_whole_records(record_property):
    changed = Changed()
    changed.cut_every_file(*small_folder())
    record_property("examples", changed.changed)
    assert changed.changed == changed.exact + changed.refused


def test_sectors_of_zeros_and_missing_files_are_noticed():
    changed = Changed()
    changed.zero_every_sector(*long_folder())
    changed.remove_every_file(*folder_of_segments())
    changed.remove_every_file(*small_folder())
    assert changed.refused > 8


@pytest.mark.parametrize(("history", "image"), [pytest.param(*one, id=name) for name, *one in worlds()])
def test_without_any_one_file_everything_is_there_or_the_folder_is_refused(history, image):
    changed = Changed()
    changed.remove_every_file(history, image)
    assert changed.changed == changed.exact + changed.refused >= len(image)


@pytest.mark.storm
@pytest.mark.parametrize("scripts", [[first_script, second_script], [first_script, reader]])
def test_two_at_once_agree_wherever_they_take_turns(scripts, seed, scaled, record_property):
    interleavings = Interleavings()
    lengths = interleavings.lengths(scripts)
    once, twice = list(switches(lengths, 1)), list(switches(lengths, 2))
    for schedule in [*once, *random.Random(seed).sample(twice, min(scaled(400), len(twice)))]:
        interleavings.run(scripts, schedule)
    record_property("examples", interleavings.schedules)


@pytest.mark.storm
def test_three_owners_and_a_reader_at_once_agree(seed, scaled, record_property):
    interleavings = Interleavings(random.Random(seed))
    scripts = [first_script, second_script, third_script, reader]
    lengths = interleavings.lengths(scripts)
    for _ in range(scaled(800)):
        interleavings.run(scripts, drawn(lengths, interleavings.chance))
    record_property("examples", interleavings.schedules)


@pytest.mark.storm
@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_a_planted_defect_is_noticed(defect):
    with defect.planted(), pytest.raises((Lost, StorageError)):
        defect.noticed_by()
