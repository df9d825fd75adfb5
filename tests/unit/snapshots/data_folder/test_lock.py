"""One process at a time holds a data folder."""

import errno
import fcntl
import os
import pickle
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from snapshots.data_folder.lock import FolderLock
from snapshots.errors import FolderInUse, StorageError
from tests.process_table import holders

HOLD = """
import sys
from pathlib import Path
from snapshots.data_folder.lock import FolderLock
FolderLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_folder_in_use_names_the_pid_of_its_holder(tmp_path, holder):
    host = socket.gethostname()
    with pytest.raises(FolderInUse, match=f"pid {holder.pid} on the host {host}") as caught:
        FolderLock(tmp_path).acquire()
    assert (caught.value.pid, caught.value.host) == (holder.pid, host)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.pid, again.host) == (str(caught.value), holder.pid, host)


def test_a_dead_process_holds_nothing(tmp_path, holder):
    holder.kill()
    holder.wait()
    with FolderLock(tmp_path):
        assert (tmp_path / "lock").read_text().split() == [str(os.getpid()), socket.gethostname()]


def test_a_folder_that_was_released_can_be_taken_again(tmp_path):
    lock = FolderLock(tmp_path)
    for _ in range(2):
        with lock, pytest.raises(FolderInUse):
            FolderLock(tmp_path).acquire()


def test_the_pid_may_be_that_of_the_service_for_which_the_lock_is_held(tmp_path):
    with FolderLock(tmp_path, pid=1), pytest.raises(FolderInUse, match="pid 1"):
        FolderLock(tmp_path).acquire()


def test_the_host_is_that_of_the_service_and_an_earlier_version_shows_none(tmp_path):
    with FolderLock(tmp_path, pid=1, host="elsewhere"):
        with pytest.raises(FolderInUse, match=r"pid 1 on the host elsewhere$"):
            FolderLock(tmp_path).acquire()
        (tmp_path / "lock").write_text(f"{7:<10}\n{'c1':<64}\n")
        with pytest.raises(FolderInUse, match=r"pid 7$") as caught:
            FolderLock(tmp_path).acquire()
    assert caught.value.host == ""


def test_a_missing_folder_is_made(tmp_path):
    with FolderLock(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / "lock").exists()


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot be used: .*/file is a file"):
        FolderLock(tmp_path / "file").acquire()


def test_a_holder_is_waited_for_as_long_as_asked_and_no_longer(tmp_path, monkeypatch):
    slept_s = []
    with FolderLock(tmp_path):
        for wait_s, looks_s in ((0.0, [7.0, 7.0]), (1.0, [7.0, 7.5, 8.0])):
            clock = SimpleNamespace(monotonic=iter(looks_s).__next__, sleep=slept_s.append)
            monkeypatch.setattr("snapshots.data_folder.lock.time", clock)
            with pytest.raises(FolderInUse):
                FolderLock(tmp_path, wait_s=wait_s).acquire()
    assert len(slept_s) == 1, "once between two looks"
    assert 0 < slept_s[0] < 1


def test_a_full_disk_keeps_nobody_from_the_lock_and_then_it_shows_no_pid(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with FolderLock(tmp_path), pytest.raises(FolderInUse, match="is in use by another process") as caught:
        FolderLock(tmp_path).acquire()
    assert caught.value.pid is None


def test_a_lock_that_is_not_taken_leaves_no_file_open(tmp_path, monkeypatch):
    def unlocked(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with FolderLock(tmp_path), pytest.raises(FolderInUse):
        FolderLock(tmp_path).acquire()
    monkeypatch.setattr(fcntl, "flock", unlocked)
    with pytest.raises(StorageError, match=r"cannot be locked: .*No locks available"):
        FolderLock(tmp_path).acquire()
    (tmp_path / "lock").unlink()
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(StorageError, match="no regular file"):
        FolderLock(tmp_path).acquire()
    assert holders(lambda path: path.is_relative_to(tmp_path)) == set()


def test_the_pid_covers_that_of_the_holder_before(tmp_path):
    (tmp_path / "lock").write_text("4194304\n")
    host = socket.gethostname()
    with FolderLock(tmp_path, pid=7), pytest.raises(FolderInUse, match=rf"pid 7 on the host {host}$"):
        FolderLock(tmp_path).acquire()


@pytest.mark.parametrize("text", ["kept", ""])
def test_a_symbolic_link_in_the_place_of_the_lock_leaves_what_it_names_alone(tmp_path, text):
    other = tmp_path / "other"
    if text:
        other.write_text(text)
    (tmp_path / "lock").symlink_to(other)
    with pytest.raises(StorageError, match="lock is a symbolic link"):
        FolderLock(tmp_path).acquire()
    assert (other.read_text() if other.exists() else "") == text


def test_a_successor_in_the_same_cluster_goes_on_while_the_lock_is_held_and_takes_it_later(tmp_path):
    predecessor = FolderLock(tmp_path, cluster="c1")
    predecessor.acquire()
    with pytest.raises(FolderInUse):
        FolderLock(tmp_path, cluster="c2").acquire()
    with pytest.raises(FolderInUse):
        FolderLock(tmp_path).acquire()
    successor = FolderLock(tmp_path, cluster="c1")
    successor.acquire()
    assert not successor.held
    predecessor.release()
    successor.acquire()
    assert successor.held
    successor.release()


def test_a_lock_without_a_cluster_has_no_successor(tmp_path):
    with FolderLock(tmp_path, cluster="c1"):
        pass
    with FolderLock(tmp_path), pytest.raises(FolderInUse):
        FolderLock(tmp_path, cluster="c1").acquire()
