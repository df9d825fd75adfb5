"""Short runs of a store, in which every file call may crash or fail."""

from collections.abc import Callable

from snapshots.files import Files
from tests.crash.model.history import History, Owner, create

Run = Callable[[History, Files], None]


def one_owner(history: History, files: Files) -> None:
    create(history, files)
    with history.ending():
        Owner(history, files, 1).recover().batch(30).batch(700).batch(30)


def batches_of_several(history: History, files: Files) -> None:
    create(history, files)
    with history.ending():
        owner = Owner(history, files, 1).recover().batch(300, 400, 100)
        owner.append(100, 1600).append(30, 500)
        owner.answer()


def snapshots(history: History, files: Files) -> None:
    create(history, files)
    with history.ending():
        owner = Owner(history, files, 1, snapshots_kept=1).recover().batch(30, 30).snapshot().batch(30)
        owner.snapshot().snapshot().batch(30)


def small_segments(history: History, files: Files) -> None:
    create(history, files)
    with history.ending():
        owner = Owner(history, files, 1, snapshots_kept=2, segment_bytes_max=100).recover()
        for _ in range(4):
            owner.batch(40).batch(60).snapshot()


def unsynced_over_segments(history: History, files: Files) -> None:
    create(history, files)
    with history.ending():
        owner = Owner(history, files, 1, segment_bytes_max=100).recover()
        owner.append(60).append(60).append(60)
        owner.answer()


def one_after_the_other(history: History, files: Files) -> None:
    """Processes die and the machine runs on: each owner reads what the last one left in the page cache."""
    create(history, files)
    with history.ending():
        Owner(history, files, 1).recover().batch(30).append(600)
    with history.ending():
        Owner(history, files, 2).recover().append(30)
    with history.ending():
        Owner(history, files, 3).recover()
    with history.ending():
        Owner(history, files, 4, snapshots_kept=1).recover().batch(30).snapshot()
    with history.ending():
        Owner(history, files, 5, snapshots_kept=1).recover().append(30)
    with history.ending():
        Owner(history, files, 6, snapshots_kept=1).recover().batch(40).snapshot().batch(50)


def several_at_once(history: History, files: Files) -> None:
    """No owner knows yet that it is fenced."""
    create(history, files)
    first, second, third, fourth = (Owner(history, files, epoch) for epoch in range(1, 5))
    with history.ending():
        first.recover().batch(30)
    with history.ending():
        second.recover()
        assert not first.try_batch(40)
        second.batch(50)
    with history.ending():
        third.recover()
        assert not second.try_batch(60)
    with history.ending():
        fourth.recover()
        assert not third.try_batch(70)
        fourth.batch(30).snapshot().batch(30)


def releases(history: History, files: Files) -> None:
    """Owners that release their folder, with and without records of their own, some of them unsynced."""
    create(history, files)
    with history.ending():
        Owner(history, files, 1).recover().batch(30).release()
    with history.ending():
        Owner(history, files, 2).recover().answer().release()
    with history.ending():
        Owner(history, files, 3).recover().batch(600).append(30).release()
    with history.ending():
        Owner(history, files, 4, snapshots_kept=1).recover().batch(30).snapshot_to_release().release()
    with history.ending():
        Owner(history, files, 5).recover().batch(30)


def rests_beside_another(history: History, files: Files) -> None:
    """The first owner does not know yet that it is fenced, and writes what the second never reads."""
    create(history, files)
    first, second, third = (Owner(history, files, epoch) for epoch in range(1, 4))
    with history.ending():
        first.recover().batch(30)
    with history.ending():
        second.recover()
        if first.view:
            first.append(40)
        second.release()
    with history.ending():
        third.recover().batch(50)


RUNS: dict[str, Run] = {
    run.__name__: run
    for run in (
        one_owner,
        batches_of_several,
        snapshots,
        small_segments,
        unsynced_over_segments,
        one_after_the_other,
        several_at_once,
        releases,
        rests_beside_another,
    )
}
