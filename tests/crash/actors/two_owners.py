"""Stops an owner, lets a successor take over, and continues the old one: what that answers, both have."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.actors.actor_client import (
    ActorProcess,
    ActorProcesses,
    Failed,
    Halted,
    actor_processes,
    reply_of,
)
from tests.crash.actors.actor_kills import HAPPENED, Counts, KilledDetector
from tests.crash.actors.actor_process import MAIN, SAVER
from tests.crash.model.oracle import Asked

ANSWERED = "the old owner answered, and its successor had all of it"
ANSWERED_WHILE = "the old owner answered while its successor was being activated, which had all of it"
FENCED_HAD = "the old owner was fenced, and its successor had all of it"
FENCED_NOT = "the old owner was fenced, and its successor had nothing of it"


@dataclass
class Successions:
    """The results of old owners that continued after their successors had taken over."""

    moments: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    counts: Counts = field(default_factory=Counts)

    def lines(self) -> list[str]:
        """Return one number and its name per line."""
        return [
            f"{self.outcomes.total():7d}  old owners stopped and continued",
            f"{len(self.moments):7d}  kinds of moments at which",
            *(f"{count:7d}  {name}" for name, count in self.outcomes.most_common()),
            f"{self.counts.checked:7d}  answers checked",
            f"{0:7d}  lost",
        ]


class Succession(KilledDetector):
    """One detector, an owner that is stopped, and its successor."""

    repeats = False

    def __init__(
        self, data: Path, processes: ActorProcesses, chance: random.Random, successions: Successions
    ) -> None:
        super().__init__(data, processes, chance, successions.counts)
        self._settings["snapshots_kept"] = 1
        self._successions = successions

    def in_a_batch(self, moment: int) -> bool:
        """Stop the owner at a moment of a batch; False where the batch has no such moment."""
        old = self._active
        asked = [*self.oracle.batch(3), self.oracle.evaluation(keyed=False)]
        old.halt(moment, MAIN, "stop")
        try:
            self._answered(asked, old.handle([one.operation for one in asked]))
        except Halted:
            old.wait_until_stopped()
        else:
            return False
        self._succeed(asked)
        self._continue(old, stopped_in=asked)
        return True

    def in_a_snapshot(self, moment: int) -> bool:
        """Stop the owner at a moment of a snapshot; False where that has no such moment."""
        old = self._active
        self.send([self.oracle.evaluation(keyed=False)])
        old.halt(moment, SAVER, "stop")
        old.tell("save")
        old.saving, begun = True, False
        while old.saving:
            begun = old.listen()[0] == "done" or begun
        if old.saved:
            return False
        old.wait_until_stopped()
        self._succeed(())
        old.saving = True
        old.owed = not begun
        self._continue(old, stopped_in=())
        return True

    def _succeed(self, asked: Sequence[Asked]) -> None:
        """Let another process take over the detector and continue."""
        self._in_doubt = asked
        self.activate(killing=False)
        self.send(self.oracle.batch())

    def _continue(self, old: ActorProcess, *, stopped_in: Sequence[Asked]) -> None:
        """Let the old owner continue, and check that its answers are true."""
        successions = self._successions
        self._note(old)
        happened = self._happened
        old.go_on()
        if not stopped_in:
            # It finishes its snapshot; then it is asked, and must not answer.
            if old.owed:
                assert old.hear()
            old.wait_until_saved()
            old.tell("handle", [self.oracle.probe().operation])
        try:
            reply = reply_of(old.hear())
        except Failed as failed:
            if not failed.by_successor:
                raise
            successions.outcomes[FENCED_HAD if happened else FENCED_NOT] += 1
        else:
            assert stopped_in, "the old owner answered to what it was asked after its successor was active"
            assert happened, f"the old owner answered {reply}, and its successor knows nothing of it"
            successions.outcomes[ANSWERED] += 1
        self._go_on_without(old)

    def in_an_activation(self, moment: int) -> bool:
        """Stop the successor at a moment of its activation, and ask the old owner; False if there is none."""
        old, asked = self._active, [*self.oracle.batch(3), self.oracle.evaluation(keyed=False)]
        new = self._new_process()
        new.halt(moment, MAIN, "stop")
        try:
            new.activate(self.detector_id, self._epoch)
        except Halted:
            new.wait_until_stopped()
        else:
            old.kill()
            return False
        self._note(new)
        outcomes = self._successions.outcomes
        try:
            reply = old.handle([one.operation for one in asked])
        except Failed as failed:
            if not failed.by_successor:
                raise
            self._in_doubt = asked
        else:
            self._answered(asked, reply)
            outcomes[ANSWERED_WHILE] += 1
        new.go_on()
        new.hear()
        self._settle()
        if self.last_outcome:
            outcomes[FENCED_HAD if self._happened else FENCED_NOT] += 1
        self._go_on_without(old)
        return True

    def _note(self, halted: ActorProcess) -> None:
        assert halted.halted is not None
        self._successions.moments[halted.halted] += 1

    def _go_on_without(self, old: ActorProcess) -> None:
        old.kill()
        # The old owner's last writes changed nothing, neither for the successor nor for the next owner.
        self.send(self.oracle.batch())
        self._kill(activating=False)
        self.activate(killing=False)
        self._probe(())

    @property
    def _happened(self) -> bool:
        return self.last_outcome == HAPPENED


def successions(data: Path, seed: object, *, batches: int, snapshots: int, activations: int) -> Successions:
    """Stop an owner at every moment of this many batches, snapshots and activations. Raises Lost."""
    came = Successions()
    with actor_processes(data) as processes:
        for kind, rounds in (
            (Succession.in_a_batch, batches),
            (Succession.in_a_snapshot, snapshots),
            (Succession.in_an_activation, activations),
        ):
            for number in range(rounds):
                moment, any_left = 0, True
                while any_left:
                    chance = random.Random(f"{seed} {number} {kind.__name__} {moment}")
                    succession = Succession(data, processes, chance, came)
                    try:
                        succession.begin()
                        any_left = kind(succession, moment)
                    except (AssertionError, Failed) as error:
                        error.add_note(f"moment {moment} of {kind.__name__}, round {number}, seed {seed}")
                        raise
                    succession.end()
                    moment += 1
    return came
