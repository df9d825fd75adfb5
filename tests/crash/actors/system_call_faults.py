"""Makes single system calls of an actor fail or kill it, with strace.

Whichever call fails, everything that was answered is there when the detector is activated again.
"""

import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from engine.evaluation.wire.events import Answer, Refused
from engine.runtime.contract.requests.operations import READS
from tests.crash.actors.actor_client import ActorProcess, ActorProcesses, Failed, Gone, actor_processes
from tests.crash.actors.actor_kills import Counts, KilledDetector
from tests.crash.model.oracle import Asked

CALLS = ("fdatasync", "fsync", "write", "rename", "openat")
MORE_CALLS = ("pwrite64", "unlink", "fallocate", "ftruncate", "getdents64", "newfstatat", "read")
ERRORS = ("error=EIO", "error=ENOSPC")
KILL = "signal=SIGKILL"
KINDS = (*ERRORS, KILL)

_ENDED_WITHIN_S = 3
_FAILED_CALL = re.compile(r"^\d+ +(?:fdatasync|write)\(.*\(INJECTED\)$", re.MULTILINE)
_CALL = re.compile(r"^(\d+) +(\w+)\(")


@dataclass
class Faults:
    """The results of the faults, each in a run of its own."""

    fired: Counter[str] = field(default_factory=Counter)
    """The faults that fired, by call and fault, as strace reports them."""
    silent: list[str] = field(default_factory=list)
    """Faults that should have fired and did not."""
    came_of_it: Counter[str] = field(default_factory=Counter)
    counts: Counts = field(default_factory=Counts)

    def lines(self) -> list[str]:
        """Return one number and its name per line."""
        return [
            f"{self.fired.total():7d}  faults that fired",
            *(f"{count:7d}  - {name}" for name, count in sorted(self.fired.items())),
            *(f"{count:7d}  {name}" for name, count in self.came_of_it.most_common()),
            *(f"{count:7d}  {name}" for name, count in self.counts.outcomes.most_common()),
            f"{self.counts.checked:7d}  answers checked",
            f"{0:7d}  lost",
        ]


def strace_can_trace() -> str | None:
    """Return why strace cannot inject faults here; None if it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(
        ["strace", "-qq", "-e", "trace=write", "-e", "inject=write:error=EIO:when=1", "true"],
        capture_output=True,
        check=False,
    )
    return None if tried.returncode == 0 else "strace may not trace here"


class Traced(KilledDetector):
    """A detector whose process leads a short life, in which one system call fails."""

    # One fault in one intended call: the checks after it must not hit it.
    probes = False

    def __init__(self, data: Path, processes: ActorProcesses, chance: random.Random, faults: Faults) -> None:
        super().__init__(data, processes, chance, faults.counts)
        self._settings = {"journal_sync": "always", "snapshots_kept": 1}
        self._faults = faults
        self.output = data.parent / "fault.strace"

    def prepare(self) -> ActorProcess:
        """Write something to recover, and start the process that will recover it."""
        self.begin()
        for _ in range(2):
            self.send([self.oracle.evaluation(keyed=False)])
        self._kill(activating=False)
        return self._new_process()

    def live(self) -> None:
        """Activate, answer, save, answer, passivate; continue after failures, as the runtime would."""
        try:
            self._activate_here()
            self.send_anyhow(self.oracle.batch())
            self.send_anyhow([self.oracle.evaluation(keyed=True)])
            self._save()
            self.send_anyhow(self.oracle.batch())
            self._active.ask("passivate")
        except Failed as failed:
            self._faults.came_of_it[f"{failed.kind} from passivation"] += 1
        except Gone:
            self._faults.came_of_it["the process died"] += 1
            self._process_died()

    def send_anyhow(self, asked: Sequence[Asked]) -> None:
        """Send a batch. If it cannot be stored, activate the detector again."""
        failed_before = self._failed_calls()
        try:
            reply = self._active.handle([one.operation for one in asked])
        except Gone:
            self._in_doubt = asked
            raise
        except Failed as failed:
            self._faults.came_of_it[f"{failed.kind} from a batch"] += 1
            # The first kind promises that nothing of it lasts.
            self._in_doubt = () if failed.kind == "WriteFailed" else asked
            self._epoch += 1
            self._activate_here()
        else:
            # The page cache would hide a missing sync.
            assert self._failed_calls() == failed_before, "what was not written or synced was answered"
            done = [pair for pair in zip(asked, reply.answers, strict=True) if not _no_room(pair[1])]
            if len(done) < len(asked):
                self._faults.came_of_it["1501 for want of room"] += 1
                assert all(one.operation.kind in READS for one, _ in done), "some of it was done"
            self.oracle.acknowledged([one for one, _ in done], [answer for _, answer in done])

    def _failed_calls(self) -> int:
        """Count the writes and syncs that failed so far; strace reports each before it returns."""
        if not self.output.exists():
            return 0
        return len(_FAILED_CALL.findall(self.output.read_text("utf-8", "replace")))

    def _save(self) -> None:
        process = self._active
        try:
            if process.save() and not process.wait_until_saved():
                self._faults.came_of_it["a snapshot that was not saved"] += 1
        except Failed as failed:
            self._faults.came_of_it[f"{failed.kind} from a rotation"] += 1
            self._active.ask("discard")
            self._epoch += 1
            self._activate_here()

    def _activate_here(self) -> None:
        """Activate the detector in the present process."""
        for _ in range(3):
            try:
                self._active.activate(self.detector_id, self._epoch)
                self._settle()
            except Failed as failed:
                self._faults.came_of_it[f"{failed.kind} from an activation"] += 1
                self._epoch += 1
            else:
                return
        raise AssertionError("one fault keeps a detector from being activated three times")

    def _process_died(self) -> None:
        self._active.until_dead()
        self._process = None

    def afterwards(self) -> None:
        """Check in another process that everything is there and works."""
        if self._process is not None:
            self._kill(activating=False)
        self.activate(killing=False)
        self._probe(())
        self.send(self.oracle.batch())
        if self._active.save():
            assert self._active.wait_until_saved()
        left = [path.name for path in self.folder.iterdir()]
        assert not [name for name in left if name.endswith("unfinished") or name == "replaying"], left
        self.end()


def _no_room(answer: Answer) -> bool:
    return isinstance(answer, Refused) and any(entry.code == 1501 for entry in answer.entries)


@contextmanager
def traced(
    process: ActorProcess, output: Path, calls: Sequence[str], fault: str | None = None
) -> Iterator[None]:
    """Trace these calls of a process and of its threads, with a fault in them."""
    injected = [] if fault is None else ["-e", f"inject={fault}"]
    strace = subprocess.Popen(
        [
            "strace",
            "-f",
            "-o",
            str(output),
            "-e",
            f"trace={','.join(calls)}",
            *injected,
            "-p",
            str(process.pid),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert strace.stderr is not None
    try:
        said = strace.stderr.readline()
        assert b"attached" in said, said
        yield
    finally:
        if not process.dead:
            # It detaches from what it traces. Otherwise it still has output to write.
            strace.terminate()
        try:
            strace.wait(_ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            strace.kill()
            strace.wait()
        strace.stderr.close()


def calls_made(data: Path, seed: object, calls: Sequence[str]) -> dict[str, int]:
    """Count how often one thread makes each call in this run."""
    with actor_processes(data) as processes:
        life = Traced(data, processes, random.Random(f"{seed}"), Faults())
        process = life.prepare()
        with traced(process, life.output, calls):
            life.live()
        life.afterwards()
    made: Counter[tuple[str, str]] = Counter()
    for line in life.output.read_text("utf-8", "replace").splitlines():
        if found := _CALL.match(line):
            made[found[1], found[2]] += 1
    return {call: max(count for (_, of), count in made.items() if of == call) for call in calls}


def faults(data: Path, seed: object, calls: Sequence[str], *, every: bool) -> Faults:
    """Make each call fail: the first, the second, … in a run each. Raises Lost.

    Each in every way, or else each in one, in turn, beginning with any.
    """
    came = Faults()
    made = calls_made(data, seed, calls)
    with actor_processes(data) as processes:
        turn = random.Random(f"{seed}").randrange(len(KINDS))
        for call, (place, kind) in product(calls, enumerate(KINDS)):
            for when in range(1, made[call] + 1):
                if not every and (when + turn) % len(KINDS) != place:
                    continue
                fault = f"{call}:{kind}:when={when}"
                # The same requests as in the run in which the calls were counted.
                life = Traced(data, processes, random.Random(f"{seed}"), came)
                try:
                    process = life.prepare()
                    with traced(process, life.output, calls, fault):
                        life.live()
                    life.afterwards()
                except (AssertionError, Failed) as error:
                    error.add_note(f"{fault} with the seed {seed}")
                    raise
                told = life.output.read_text("utf-8", "replace")
                if ("killed by SIGKILL" if kind == KILL else "(INJECTED)") in told:
                    came.fired[f"{call} {kind}"] += 1
                else:
                    came.silent.append(fault)
    return came
