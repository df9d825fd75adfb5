"""Compares what a worker should have with what it has, and mends what differs."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from engine.runtime.contract.requests.calls import Ended, Held, Report
from engine.runtime.scheduler.workers.detector_worker import DetectorWorker, Granted


class Over(NamedTuple):
    """The worker no longer has an activation, and its report of the end was lost."""

    epoch: int


class Drop(NamedTuple):
    """The worker has an activation that it should not have."""

    epoch: int


class Tell(NamedTuple):
    """The worker does not know whether another detector waits for the slot of an activation."""

    epoch: int
    room_wanted: bool


Mend = Over | Drop | Tell


def compare(granted: Mapping[int, Granted], held: Sequence[Held]) -> list[Mend]:
    """Return what mends the difference between what a worker should have, by epochs, and what it has."""
    epochs = {one.epoch for one in held}
    mends: list[Mend] = [Over(epoch) for epoch, one in granted.items() if one.active and epoch not in epochs]
    for one in held:
        should = granted.get(one.epoch)
        if should is None:
            mends.append(Drop(one.epoch))
        elif should.active and should.room_wanted is not one.room_wanted:
            mends.append(Tell(one.epoch, should.room_wanted))
    return mends


class Comparison:
    """Compares a worker at each look.

    What differs may be on its way. So only what still differs at the next look is mended.
    """

    def __init__(self, worker: DetectorWorker, drop: Callable[[DetectorWorker, int], object]) -> None:
        """`drop` begins to drop an activation that the worker should not have."""
        self._worker = worker
        self._drop = drop
        self._differs: list[Mend] = []

    async def look(self) -> None:
        """Ask the worker what it has. Raises ActorDied."""
        worker = self._worker
        held = await worker.port.held()
        for one in held:
            if one.epoch in worker.active:
                newest = one.newest_firing
                worker.reported(
                    Report(one.epoch, at_risk=one.at_risk, problem=one.problem, newest_firing=newest)
                )
        before, self._differs = self._differs, compare(worker.granted(), held)
        for mend in self._differs:
            if mend in before:
                self._mend(mend)

    def _mend(self, mend: Mend) -> None:
        worker = self._worker
        match mend:
            case Over():
                # It may have events in its journal that are in no snapshot.
                worker.reported(Report(mend.epoch, ended=Ended(journal=True)))
            case Tell():
                worker.port.make_room(mend.epoch, wanted=mend.room_wanted)
            case Drop():
                self._drop(worker, mend.epoch)
