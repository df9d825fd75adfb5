"""Kills actor processes again and again, and checks that nothing they answered is lost."""

import contextlib
import json
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import Reply
from engine.runtime.detector.persistence.replay_attempts import retry
from snapshots.files import RealFiles
from tests.crash.actors import kill_moments
from tests.crash.actors.actor_client import (
    ActorProcess,
    ActorProcesses,
    Failed,
    Gone,
    Halted,
    actor_processes,
    reply_of,
)
from tests.crash.actors.actor_process import MAIN, SAVER
from tests.crash.model.oracle import Asked, Evaluation, ListRules, Lost, Oracle, fed_of, told
from tests.local_runtime.catalogues import newborn

START_US = 1_700_000_000_000_000
WAKES_IN_A_ROW_MAX = 6

HAPPENED = "unknown, and found to have happened"
NOT_HAPPENED = "unknown, and found not to have happened"
REPEATED = "unknown, and repeated with its keys"
ANSWERED = "answered just before the kill"


@dataclass
class Counts:
    """Statistics of a run that kills actors."""

    kills: Counter[str] = field(default_factory=Counter)
    """The kills by moment, as the files show."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """The outcomes of the batches in flight."""
    moments: Counter[str] = field(default_factory=Counter)
    """Where processes halted to be killed."""
    checked: int = 0
    """Answers."""
    activations: int = 0
    records: int = 0
    """Records that were replayed."""
    set_aside: int = 0
    """Activations that were refused because too many processes had been killed at one record."""
    detectors: int = 0
    firings: int = 0
    """Firings that were read from feeds, some of them again and again."""

    @property
    def shown(self) -> int:
        """How many kills came during a snapshot, a rotation or an activation, as the files show."""
        return sum(self.kills[one] for one in kill_moments.SHOWN_BY_FILES)

    def lines(self) -> list[str]:
        """Return one number and its name per line."""
        counted = {
            "detectors": self.detectors,
            "kills": self.kills.total(),
            **{f"- {name}": count for name, count in self.kills.most_common()},
            "batches in flight": self.outcomes.total(),
            **{f"- {name}": count for name, count in self.outcomes.most_common()},
            "activations": self.activations,
            "records replayed": self.records,
            "detectors refused after too many kills at one record": self.set_aside,
            "answers checked": self.checked,
            "firings checked": self.firings,
            "lost": 0,
        }
        return [f"{count:7d}  {name}" for name, count in counted.items()]


class KilledDetector:
    """One detector, and the process that hosts it and is killed."""

    probes = True
    """Whether to ask for the clock sometimes although nothing is in doubt."""
    repeats = True
    """Whether a batch in doubt may be repeated by its keys, instead of only asking what happened."""

    def __init__(self, data: Path, processes: ActorProcesses, chance: random.Random, counts: Counts) -> None:
        self.chance = chance
        self.counts = counts
        self.detector_id = secrets.token_hex(16)
        self.folder = data / "detectors" / self.detector_id
        self.oracle = Oracle(chance.choice, START_US)
        self._processes = processes
        self._epoch = 0
        self._in_doubt: Sequence[Asked] = ()
        self._settings: dict[str, Any] = {
            "journal_sync": chance.choice(("always", "always", "interval")),
            "snapshots_kept": chance.choice((1, 2, 3)),
        }
        self._process: ActorProcess | None = None
        self._firings_read = 0
        self.last_outcome = ""
        """The outcome of the last batch in doubt."""
        newborn(data, self.detector_id)
        counts.detectors += 1

    # -- what is done ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Activate the detector for the first time; add rules, send an event."""
        self.activate(killing=False)
        self.send([self.oracle.add_rule(), self.oracle.add_rule(), self.oracle.evaluation(keyed=False)])

    def activate(self, *, killing: bool = True) -> None:
        """Activate the detector until a process survives; find out about the batch in doubt."""
        for _ in range(WAKES_IN_A_ROW_MAX):
            process = self._new_process()
            doomed = killing and self.chance.random() < 0.4
            try:
                if doomed and self.chance.random() < 0.8:
                    process.halt(self._moment(40))
                    records = process.activate(self.detector_id, self._epoch)
                elif doomed:
                    process.tell("activate", self.detector_id, self._epoch)
                    time.sleep(self.chance.random() * 0.006)
                    self._kill(activating=True)
                    continue
                else:
                    records = process.activate(self.detector_id, self._epoch)
            except Halted:
                self._kill(activating=True)
                continue
            except Failed as failed:
                # Several processes were killed at one record. Retry it, as the message says.
                if "processes were killed at record" not in str(failed):
                    raise
                self.counts.set_aside += 1
                retry(self.folder, RealFiles())
                self._kill(activating=True)
                continue
            process.halt(-1)
            self.counts.activations += 1
            self.counts.records += records
            self._settle()
            return
        self.activate(killing=False)

    def send(self, asked: Sequence[Asked]) -> None:
        """Send a batch and check the answers."""
        self._answered(asked, self._active.handle([one.operation for one in asked]))

    def serve(self) -> None:
        """Send a few batches, without faults."""
        for _ in range(self.chance.randrange(3)):
            self.send(self.oracle.batch())
            self._maybe_repeat()
            self._check_feed()
        if self.chance.random() < 0.3 and self._active.save():
            assert self._active.wait_until_saved()

    # -- what kills it ---------------------------------------------------------------------------------------

    def in_a_batch(self) -> None:
        """Kill it at a random moment of a batch."""
        process, asked = self._active, self.oracle.batch()
        process.halt(self._moment(14))
        self._send_and_die(asked)

    def after_some_time(self) -> None:
        """Kill it a short time after a batch was sent."""
        asked = self.oracle.batch()
        self._active.tell("handle", [one.operation for one in asked])
        time.sleep(self.chance.random() * 0.003)
        self._die(asked)

    def while_saving(self) -> None:
        """Kill it at a random moment of a snapshot, during batches."""
        process = self._active
        self.send([self.oracle.evaluation(keyed=False)])
        process.halt(self._moment(30), SAVER)
        assert process.save()
        while self.chance.random() < 0.5 and not self.oracle.full:
            self.send(self.oracle.batch())
        if self.chance.random() < 0.8:
            process.wait_until_saved()
        if self.chance.random() < 0.3:
            self.after_some_time()
        else:
            self._die(())

    def while_rotating(self) -> None:
        """Kill it at a random moment of beginning the next segment."""
        process = self._active
        self.send([self.oracle.evaluation(keyed=False)])
        if self.chance.random() < 0.5:
            # The segment is closed, and the snapshot has not begun.
            process.halt(0, SAVER)
        else:
            process.halt(self._moment(6), MAIN)
        with contextlib.suppress(Halted):
            assert process.save()
            process.wait_until_saved()
        self._die(())

    def while_resting(self) -> None:
        """Kill it at a random moment of passivation."""
        process = self._active
        process.halt(self._moment(4))
        with contextlib.suppress(Halted):
            process.ask("passivate")
        self._die(())

    # -- inside ----------------------------------------------------------------------------------------------

    @property
    def _active(self) -> ActorProcess:
        assert self._process is not None
        return self._process

    def _new_process(self) -> ActorProcess:
        settings = dict(self._settings)
        if self.chance.random() < 0.2:
            # It changes nothing here, but the journal must record it.
            settings["limits"] = {"batch_events_max": self.chance.randrange(100, 10_000)}
        self._epoch += 1
        self._process = self._processes.start(**settings)
        return self._process

    def _moment(self, most: int) -> int:
        return self.chance.randrange(most)

    def _send_and_die(self, asked: Sequence[Asked]) -> None:
        process = self._active
        try:
            reply = process.handle([one.operation for one in asked])
        except Halted:
            self._die(asked)
        else:
            self._answered(asked, reply)
            self._die(())

    def _answered(self, asked: Sequence[Asked], reply: Reply) -> None:
        assert reply.crash is None, reply.crash
        self.oracle.acknowledged(asked, reply.answers)

    def _die(self, asked: Sequence[Asked]) -> None:
        """Kill it with this in flight. What it had answered by then counts as answered."""
        said = self._kill(activating=False, in_flight=bool(asked))
        done = [message[1] for message in said if message[0] == "done"]
        assert not [message for message in said if message[0] == "failed"], said
        if asked and done:
            self._answered(asked, reply_of(done[0]))
            self.counts.outcomes[ANSWERED] += 1
            return
        self._in_doubt = asked

    def _kill(self, *, activating: bool, in_flight: bool = False) -> list[list[Any]]:
        process = self._active
        if process.halted is not None:
            self.counts.moments[process.halted] += 1
        said = process.kill()
        self._process = None
        activating = activating and not any(message[0] == "done" for message in said)
        snapshots_kept = self._settings["snapshots_kept"]
        what = kill_moments.of_the_kill(
            self.folder,
            self._epoch,
            activating=activating,
            in_flight=in_flight,
            snapshots_kept=snapshots_kept,
        )
        self.counts.kills[what] += 1
        return said

    def _settle(self) -> None:
        """Find out about the batch in doubt; then check the exact position."""
        asked, self._in_doubt = self._in_doubt, ()
        keyed = all(isinstance(one, Evaluation) and one.key for one in asked)
        self.last_outcome = ""
        if asked and keyed and self.repeats and self.chance.random() < 0.6:
            self.counts.outcomes[REPEATED] += 1
            self.send(asked)
        elif asked or (self.probes and self.chance.random() < 0.3):
            self._probe(asked)
        if (at := tuple(self._active.ask("position"))) != self.oracle.position():
            raise Lost(f"the detector is at {at}, and not at {self.oracle.position()}, after {asked}")
        self._check_feed()

    def _check_feed(self) -> None:
        """Read the whole feed: it has what was read before, and no number is missing or repeated."""
        (answer,) = self._active.handle([ops.firings(0)]).answers
        assert isinstance(answer, Done), answer
        page = json.loads(answer.result)
        found = [(one["seq"], one["ruleId"], one["name"]) for one in page["firings"]]
        fed = [(number, *one) for number, one in enumerate(fed_of(self.oracle.reference), 1)]
        # What is not synced cannot be read yet.
        synced = self._settings["journal_sync"] == "always"
        if found != (fed if synced else fed[: len(found)]) or len(found) < self._firings_read:
            raise Lost(f"the feed has {found}, and not {fed}; {self._firings_read} were read before")
        self._firings_read = page["next"]
        self.counts.firings += len(found)

    def _probe(self, asked: Sequence[Asked]) -> None:
        """Find out whether the batch in doubt happened, by the rules and by how late one more event is."""
        if not self.oracle.reference.events:
            return
        probe = self.oracle.probe()
        listing, answer = self._active.handle([ListRules().operation, probe.operation]).answers
        ((_, late_us),) = told(probe, answer)
        clock_us = probe.events[0].time_us + late_us if late_us else self.oracle.clock_us
        happened = self.oracle.settle(asked, told(ListRules(), listing), clock_us)
        if asked:
            self.last_outcome = HAPPENED if happened else NOT_HAPPENED
            self.counts.outcomes[self.last_outcome] += 1
        self.oracle.check(probe, told(probe, answer))
        self.oracle.time_us = max(self.oracle.time_us, self.oracle.clock_us)

    def _maybe_repeat(self) -> None:
        """Repeat a request that was answered before, perhaps by a process that is dead."""
        if self.oracle.keyed and self.chance.random() < 0.3:
            key = self.chance.choice(list(self.oracle.keyed))
            (answer,) = self._active.handle([self.oracle.keyed[key][0].operation]).answers
            self.oracle.repeated(key, answer)

    def end(self) -> None:
        """Release the healthy detector. Nothing of it was ever damaged."""
        damaged = [path.name for path in self.folder.iterdir() if "damaged" in path.name]
        assert not damaged, damaged
        self.counts.checked += self.oracle.checked
        if self._process is not None:
            self._process.kill()
            self._process = None


WAYS: tuple[Callable[[KilledDetector], None], ...] = (
    *[KilledDetector.in_a_batch] * 4,
    *[KilledDetector.after_some_time] * 3,
    *[KilledDetector.while_saving] * 4,
    *[KilledDetector.while_rotating] * 2,
    KilledDetector.while_resting,
)


def kill_actors(data: Path, seed: object, *, kills: int) -> Counts:
    """Kill at least this many times, until files show the moment of a third of the kills. Raises Lost."""
    counts = Counts()
    with actor_processes(data) as processes:
        number = 0
        while counts.kills.total() < kills or counts.shown < kills / 3:
            number += 1
            chance = random.Random(f"{seed} {number}")
            fight = KilledDetector(data, processes, chance, counts)
            try:
                fight.begin()
                while not fight.oracle.full and counts.kills.total() < kills:
                    fight.serve()
                    chance.choice(WAYS)(fight)
                    fight.activate()
                fight.end()
            except (AssertionError, Gone, Failed) as error:
                error.add_note(f"detector {number} with the seed {seed}: {counts}")
                raise
    return counts
