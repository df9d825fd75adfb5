"""Records at which processes ended: told by how they ended, left alone for a time, tried again on demand."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from api.cli import main
from engine.runtime.contract.requests import operations as ops
from engine.runtime.detector.persistence import replay_attempts as attempts
from engine.runtime.detector.persistence.replay import Replay
from engine.runtime.detector.persistence.replay_attempts import Poisoned
from snapshots.files import RealFiles
from snapshots.format.segment_reader import Record
from tests.faulty_files import FaultyFiles
from tests.local_runtime.owners import ONE, Owners

VICTIM = """
import ctypes, os, signal, sys
from pathlib import Path
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.cluster.actors.detector_actor import crashes_to
from engine.runtime.detector.persistence.replay import Replay
from engine.runtime.contract.settings import RuntimeSettings

data, epoch, death = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
take = Replay.take

def dies(replay, told):
    if told.events_seen == 2:
        if death == "segmentation fault":
            ctypes.string_at(0)
        os.kill(os.getpid(), getattr(signal, death))
    return take(replay, told)

if death != "none":
    Replay.take = dies
actor = OperationExecutor(RuntimeSettings(data=data), now_us=lambda: int(sys.argv[4]), crashes_to=crashes_to)
print(actor.activate(sys.argv[5], epoch).records)
if death == "none":
    # What it is replayed with is over: a crash goes to standard error again.
    ctypes.string_at(0)
"""


class World(Owners):
    """A detector with four records, and processes that activate it."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self(ops.add_rule("r", "a == 1"))
        for at_ms in (1000, 2000, 3000):
            self.event(at_ms, a=1)
        self.mark = self.folder / "replaying"

    def process(self, death: str) -> subprocess.CompletedProcess[str]:
        """Activate the detector in a process of its own, which ends so while it replays record 3."""
        self.epoch += 1
        arguments = (str(self.data), str(self.epoch), death, str(self.now_us), ONE)
        command = [sys.executable, "-c", VICTIM, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def replayed(self) -> int:
        """Activate the detector in this process; gives how many records were replayed."""
        self.activate()
        return self.activated.records


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class Killed(BaseException):
    """Stands for a killed process: nobody catches it, so the mark is left behind."""


def kill(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Replay.take

    def killed(replay: Replay, told: Any) -> bool:
        if told.events_seen == 2:
            raise Killed
        return take(replay, told)

    monkeypatch.setattr(Replay, "take", killed)


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    kill(monkeypatch)
    return monkeypatch


@pytest.mark.storm
@pytest.mark.parametrize("death", ["segmentation fault", "SIGABRT"])
def test_two_crashes_at_a_record_are_enough_and_what_they_were_is_told(world: World, death: str) -> None:
    for _ in range(2):
        ended = world.process(death)
        assert ended.returncode in (-signal.SIGSEGV, -signal.SIGABRT), ended.stderr
    crash = {"segmentation fault": "Segmentation fault", "SIGABRT": "Aborted"}[death]
    said = rf"journal-.* at [0-9]+: 2 processes crashed \({crash}\) at record 3"
    for _ in range(2):
        with pytest.raises(Poisoned, match=said):
            world.activate()


@pytest.mark.storm
def test_a_kill_from_outside_says_less_of_the_record_than_a_crash(world: World) -> None:
    for _ in range(2):
        assert world.process("SIGKILL").returncode == -signal.SIGKILL
    assert attempts.last_deaths(world.mark, RealFiles()).kills == 2
    assert world.replayed() == 4
    assert not world.mark.exists()


@pytest.mark.storm
def test_a_crash_after_the_replay_is_told_on_standard_error(world: World) -> None:
    ended = world.process("none")
    assert (ended.returncode, ended.stdout) == (-signal.SIGSEGV, "4\n"), ended.stderr
    assert "Fatal Python error: Segmentation fault" in ended.stderr
    assert not world.mark.exists()


def test_a_record_at_which_many_were_killed_is_left_alone_for_ten_minutes(
    world: World, deadly: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        world.now_us += 1_000_000
        with pytest.raises(Killed):
            world.activate()
    last_us = world.now_us
    for ago_s in (0, 300, 600):
        # Asking does not prolong it.
        world.now_us = last_us + ago_s * 1_000_000
        with pytest.raises(
            Poisoned, match="5 processes were killed at record 3, which is not replayed for 600"
        ):
            world.activate()
    world.now_us += 1
    with pytest.raises(Killed):
        world.activate()
    assert attempts.last_deaths(world.mark, RealFiles()).kills == 1, "it is counted anew"
    deadly.undo()
    assert world.replayed() == 4


def test_the_first_attempt_after_a_passivation_is_not_marked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        world.rest()
        assert not world.mark.exists()
        world(ops.rules())
    world.actor.passivate()
    kill(monkeypatch)
    for kills in range(6):
        assert attempts.last_deaths(world.mark, RealFiles()).kills == kills - (kills > 0)
        with pytest.raises(Killed):
            world.activate()
    with pytest.raises(Poisoned, match="5 processes were killed at record 3"):
        world.activate()


def test_deaths_at_different_records_do_not_add_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    take = Replay.take
    for number in range(12):

        def killed(replay: Replay, told: Any, at: int = number % 2) -> bool:
            if told.events_seen == 1 + at:
                raise Killed
            return take(replay, told)

        monkeypatch.setattr(Replay, "take", killed)
        with pytest.raises(Killed):
            world.activate()
    monkeypatch.undo()
    assert world.replayed() == 4


@pytest.mark.usefixtures("deadly")
def test_the_operator_can_have_it_tried_again_at_once(world: World, deadly: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        with pytest.raises(Killed):
            world.activate()
    with pytest.raises(Poisoned) as refused:
        world.activate()
    deadly.undo()
    # As the message says.
    command = str(refused.value).split("`")[1].split()[1:]
    run = CliRunner().invoke(main, command)
    assert run.exit_code == 0, run.output
    assert (
        f"The next request tries the detector {ONE} again: 5 processes were killed at record 3" in run.output
    )
    assert world.replayed() == 4
    run = CliRunner().invoke(main, command)
    assert (run.exit_code, run.output) == (0, f"The detector {ONE} is not paused.\n")


def test_a_detector_that_is_not_there_cannot_be_tried_again(world: World) -> None:
    for name in ("none", f"{ONE}/x"):
        run = CliRunner().invoke(main, ["retry", "--data", str(world.data), "--detector", name])
        assert run.exit_code == 1
        assert "holds no detector" in run.output


def test_a_mark_that_was_cut_off_tells_of_what_was_before(world: World, deadly: pytest.MonkeyPatch) -> None:
    with pytest.raises(Killed):
        world.activate()
    deadly.undo()
    data = world.mark.read_bytes()
    for length in range(len(data)):
        world.mark.write_bytes(data[:length])
        assert attempts.last_deaths(world.mark, RealFiles()).sequence <= 3
    os.truncate(world.mark, 0)
    assert world.replayed() == 4


class Machine:
    """A folder whose records are replayed by one process after another, each record taking some time."""

    def __init__(self, folder: Path, records: int, record_ms: int) -> None:
        self.folder = folder
        self.files = FaultyFiles()
        self.records = [Record(1 + number, 3, b"", folder / "journal", 0) for number in range(records)]
        self.record_ms = record_ms
        self.now_us = 10**12

    def process(self, dies_at: int | None, crash: bytes = b"") -> None:
        """Replay until the fatal record, leaving a crash report if the process has time for one."""
        attempt = attempts.ReplayAttempt(self.folder, self.files, now_us=lambda: self.now_us)
        attempt.begin()
        for record in self.records:
            attempt.reached(record)
            if record.sequence == dies_at:
                with (self.folder / "replaying").open("ab") as mark:
                    mark.write(crash)
                return
            self.now_us += self.record_ms * 1000
        attempt.survived()


@pytest.mark.parametrize("record_ms", [0, 30, 60, 99, 100, 250])
def test_a_record_at_which_processes_die_is_found_wherever_it_is(tmp_path: Path, record_ms: int) -> None:
    for deaths, crash in ((2, b"Fatal Python error: Aborted"), (5, b"")):
        for fatal in range(1, 8):
            folder = tmp_path / f"{deaths}-{fatal}"
            folder.mkdir()
            machine = Machine(folder, 7, record_ms)
            for _ in range(deaths):
                machine.process(fatal, crash)
            with pytest.raises(Poisoned, match=f"{deaths} processes .* at record {fatal},"):
                machine.process(fatal)


def test_crash_reports_go_to_the_mark_while_a_journal_is_replayed(tmp_path: Path) -> None:
    directed: list[int | None] = []
    before = len(list(Path("/proc/self/fd").iterdir()))
    attempt = attempts.ReplayAttempt(tmp_path, RealFiles(), crashes_to=directed.append)
    attempt.begin()
    attempt.reached(Record(1, 3, b"", tmp_path / "journal", 0))
    [descriptor] = directed
    assert descriptor is not None
    assert Path(f"/proc/self/fd/{descriptor}").readlink() == tmp_path / "replaying"
    for _ in range(2):
        attempt.survived()
        assert directed == [descriptor, None]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_crash_is_told_by_the_first_line_of_its_report(tmp_path: Path) -> None:
    Machine(tmp_path, 3, 0).process(1, b"Fatal Python error: Aborted\n\nThread 1:\n")
    deaths = attempts.last_deaths(tmp_path / "replaying", RealFiles())
    assert str(deaths) == "1 process crashed (Aborted) at record 1 or soon after"


def test_a_long_journal_of_small_records_is_marked_every_hundred_milliseconds(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 5000, 1)
    machine.process(None)
    assert machine.files.calls.count("write") == 1 + 5000 / attempts.MARK_MS
    assert not (tmp_path / "replaying").exists()


def test_a_clock_that_is_set_back_meanwhile_does_not_stop_the_marks(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 100, -10)
    machine.process(None)
    assert machine.files.calls.count("write") == 1 + 10


def test_deaths_after_a_record_that_others_died_of_are_not_counted_there(tmp_path: Path) -> None:
    for number, each in enumerate([(3, 3, *(4, 6) * 5), (3, 3, 4, 5, 6, 7)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        machine = Machine(folder, 7, 1)
        for fatal in each:
            machine.process(fatal)
        machine.process(None)
