"""Two processes that both take a detector for theirs: what the older one still answers, the later one has."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.runtime.contract.operations import decode_reply, encode_batch
from tests.crash.driver import MAIN, SAVER
from tests.crash.oracle import Asked
from tests.crash.storm import HAPPENED, Counts, Fight
from tests.crash.victims import Failed, Halted, Nursery, Victim, nursery

ANSWERED = "the old owner answered, and its successor had all of it"
ANSWERED_WHILE = "the old owner answered while its successor was waking, which had all of it"
FENCED_HAD = "the old owner was fenced, and its successor had all of it"
FENCED_NOT = "the old owner was fenced, and its successor had nothing of it"


@dataclass
class Meetings:
    """What came of old owners that went on after their successors had woken."""

    moments: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    counts: Counts = field(default_factory=Counts)

    def lines(self) -> list[str]:
        """Say it, a number to a line."""
        return [
            f"{self.outcomes.total():7d}  old owners stopped and continued",
            f"{len(self.moments):7d}  kinds of moments at which",
            *(f"{count:7d}  {name}" for name, count in self.outcomes.most_common()),
            f"{self.counts.checked:7d}  answers checked",
            f"{0:7d}  lost",
        ]


class Meeting(Fight):
    """One detector, an owner that is stopped, and the one that wakes meanwhile."""

    repeats = False

    def __init__(self, data: Path, nest: Nursery, chance: random.Random, meetings: Meetings) -> None:
        super().__init__(data, nest, chance, meetings.counts)
        self._settings["snapshots_kept"] = 1
        self._meetings = meetings

    def in_a_batch(self, moment: int) -> bool:
        """Stop the owner at a moment of a batch; False where the batch has no such moment."""
        old = self._awake
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
        old = self._awake
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
        """Have another process take the detector over and go on."""
        self._in_doubt = asked
        self.wake(killing=False)
        self.send(self.oracle.batch())

    def _continue(self, old: Victim, *, stopped_in: Sequence[Asked]) -> None:
        """Let the old owner go on, and see that whatever it says is so."""
        meetings = self._meetings
        self._note(old)
        happened = self._happened
        old.go_on()
        if not stopped_in:
            # It comes to the end of its snapshot; then it is asked, and must not answer.
            if old.owed:
                assert old.hear()
            old.wait_until_saved()
            old.tell("handle", encode_batch([self.oracle.probe().operation]))
        try:
            reply = decode_reply(old.hear())
        except Failed as failed:
            if not failed.by_successor:
                raise
            meetings.outcomes[FENCED_HAD if happened else FENCED_NOT] += 1
        else:
            assert stopped_in, "the old owner answered to what it was asked after its successor had woken"
            assert happened, f"the old owner answered {reply}, and its successor knows nothing of it"
            meetings.outcomes[ANSWERED] += 1
        self._go_on_without(old)

    def in_a_wake(self, moment: int) -> bool:
        """Stop the successor at a moment of its wake, and ask the old owner; False where there is none."""
        old, asked = self._awake, [*self.oracle.batch(3), self.oracle.evaluation(keyed=False)]
        new = self._new_victim()
        new.halt(moment, MAIN, "stop")
        try:
            new.activate(self.detector_id, self._epoch)
        except Halted:
            new.wait_until_stopped()
        else:
            old.kill()
            return False
        self._note(new)
        outcomes = self._meetings.outcomes
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

    def _note(self, halted: Victim) -> None:
        assert halted.halted is not None
        self._meetings.moments[halted.halted] += 1

    def _go_on_without(self, old: Victim) -> None:
        old.kill()
        # What the old owner wrote last has changed nothing, neither for the successor nor for the next one.
        self.send(self.oracle.batch())
        self._kill(waking=False)
        self.wake(killing=False)
        self._probe(())

    @property
    def _happened(self) -> bool:
        return self.last_outcome == HAPPENED


def meetings(data: Path, seed: object, *, batches: int, snapshots: int, wakes: int) -> Meetings:
    """Stop an owner at every moment of so many batches, snapshots and wakes. Raises Lost."""
    came = Meetings()
    with nursery(data) as nest:
        for kind, rounds in (
            (Meeting.in_a_batch, batches),
            (Meeting.in_a_snapshot, snapshots),
            (Meeting.in_a_wake, wakes),
        ):
            for number in range(rounds):
                moment, any_left = 0, True
                while any_left:
                    chance = random.Random(f"{seed} {number} {kind.__name__} {moment}")
                    meeting = Meeting(data, nest, chance, came)
                    try:
                        meeting.begin()
                        any_left = kind(meeting, moment)
                    except (AssertionError, Failed) as error:
                        error.add_note(f"moment {moment} of {kind.__name__}, round {number}, seed {seed}")
                        raise
                    meeting.end()
                    moment += 1
    return came
