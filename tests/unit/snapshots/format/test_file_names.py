"""The names of a folder's files say what each file is."""

from itertools import islice

from snapshots.format.file_names import aside_names, listing, segment_name, snapshot_name, unfinished_name


def test_copies_of_one_file_are_numbered_from_2_on():
    names = aside_names(snapshot_name(5), "damaged")
    assert [name.removeprefix(snapshot_name(5)) for name in islice(names, 3)] == [
        ".damaged",
        ".damaged-2",
        ".damaged-3",
    ]


def test_copies_are_told_from_all_other_names():
    copies = {*islice(aside_names(snapshot_name(5), "damaged"), 2), f"{segment_name(3, 1)}.torn"}
    others = {"notes", "notes.damaged", unfinished_name(snapshot_name(9), 3), segment_name(3, 1)}
    found = listing(copies | others)
    assert found.set_aside == copies
    assert found.damaged_snapshots == {5}
    assert found.ever_had_a_snapshot
    assert not listing(others).ever_had_a_snapshot


def test_a_folder_that_nobody_has_claimed_is_of_epoch_0():
    assert listing([snapshot_name(0)]).epoch == 0
