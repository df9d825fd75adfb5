"""A file system that lacks what the storage relies on is refused before a service starts on it."""

import contextlib
import errno
import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from snapshots.data_folder import trial
from snapshots.data_folder.trial import Look, Seen, look, try_folder
from snapshots.errors import UnsafeFolder
from snapshots.files import OpenFile, RealFiles
from tests.faulty_files import Died, FaultyFiles
from tests.process_table import holders

REFUSED = "cannot be used, because its file system fails to "


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def test_a_folder_that_is_as_it_must_be_is_taken_and_left_as_it_was(data: Path) -> None:
    assert try_folder(data) == []
    assert list(data.iterdir()) == []
    assert holders(lambda path: path.is_relative_to(data)) == set(), "no file stays open"


def test_a_process_without_the_folder_sees_nothing_and_no_lock(data: Path) -> None:
    assert look(data / "missing", "created") == Seen([], None, locked=False)


def seen_by(change: Callable[[Seen, int], Seen]) -> Look:
    """Another process that sees something else the first or the second time."""
    asked: list[Seen] = []

    def faulty(folder: Path, create: str) -> Seen:
        asked.append(change(look(folder, create), len(asked)))
        return asked[-1]

    return faulty


def stale(folder: Path, create: str, first: list[Seen] = []) -> Seen:  # noqa: B006 -- what it remembers
    """Another machine that goes on seeing what it has seen."""
    first.append(look(folder, create)._replace(locked=not first))
    return first[0]._replace(locked=first[-1].locked)


PEERS: dict[str, tuple[Look, str]] = {
    "sees nothing": (
        lambda _, __: Seen([], None, locked=False),
        "show changes at once: it does not see a new",
    ),
    "sees an empty file": (seen_by(lambda seen, _: seen._replace(claim="")), "does not see a new file"),
    "still sees what is gone": (stale, "show changes at once: it still sees a removed file; .*`noac`"),
    "still sees the name of what is gone": (
        seen_by(lambda seen, asked: seen._replace(names=["claim", *seen.names]) if asked else seen),
        "still sees a removed file",
    ),
    "does not see the next file": (
        seen_by(lambda seen, asked: seen._replace(names=["lock"]) if asked else seen),
        "does not see a new file",
    ),
    "creates what cannot be seen": (
        lambda folder, create: (look(folder, create), (folder / create).unlink())[0],
        "a file that it has created is not seen",
    ),
    "takes every lock": (
        seen_by(lambda seen, _: seen._replace(locked=False)),
        "lock a file: it can lock it as",
    ),
    "never gets a lock": (
        seen_by(lambda seen, _: seen._replace(locked=True)),
        "lock a file: it cannot lock it after its release; .*`local_lock`",
    ),
}


@pytest.mark.parametrize("peer", PEERS)
def test_another_process_that_sees_something_else_refuses_the_folder(data: Path, peer: str) -> None:
    faulty, said = PEERS[peer]
    with pytest.raises(UnsafeFolder, match=REFUSED + ".*" + said):
        try_folder(data, faulty, peer="it")
    assert list(data.iterdir()) == []


def test_every_call_that_fails_refuses_the_folder_but_a_full_disk_does_not(data: Path) -> None:
    whole = FaultyFiles()
    assert try_folder(data, look, files=whole) == []
    needed = {"make_folder", "sync_folder", "create", "write", "sync", "rename", "remove"}
    assert needed <= {*whole.calls}
    # The first call reads the table of mounts, which need not exist.
    for call in range(1, len(whole.calls)):
        with pytest.raises(UnsafeFolder, match=f"{REFUSED}.*{os.strerror(errno.EIO)}.*; "):
            try_folder(data, look, files=FaultyFiles(fails_at=call))
        (said,) = try_folder(data, look, files=FaultyFiles(fails_at=call, error=errno.ENOSPC))
        assert "is not tried, because its disk is full" in said
        assert list(data.iterdir()) == []


def test_a_folder_in_which_this_user_may_not_write_is_told_as_such(data: Path) -> None:
    with pytest.raises(
        UnsafeFolder, match=r"cannot be used: Permission denied.*; name a folder that this user can"
    ):
        try_folder(data, look, files=FaultyFiles(fails_at=1, error=errno.EACCES))


def test_a_file_system_that_does_not_tell_its_room_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def untold(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "statvfs", untold)
    with pytest.raises(UnsafeFolder, match=f"{REFUSED}tell its free room: .*{os.strerror(errno.EIO)}"):
        try_folder(data, look)


def test_a_doubtful_mount_is_told(data: Path) -> None:
    class OnFuse(RealFiles):
        def read(self, path: Path) -> bytes:
            mounts = Path("/proc/self/mountinfo")
            return b"60 1 0:52 / / rw - fuse none rw\n" if path == mounts else super().read(path)

    (said,) = try_folder(data, look, files=OnFuse())
    assert f"{data} is on the fuse mount at /" in said


class NoRename(RealFiles):
    """A file system that copies instead of renaming, over the file that is there or to another one."""

    def __init__(self, *, over: bool) -> None:
        self._over = over

    def rename(self, old: Path, new: Path) -> None:
        if not self._over:
            new.unlink()
        new.write_bytes(old.read_bytes())
        old.unlink()


class NotExclusive(RealFiles):
    """A file system on which the creation of a file that exists opens it."""

    def create(self, path: Path) -> OpenFile:
        if path.exists():
            path.unlink()
        return super().create(path)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (NoRename(over=True), "rename a file over another: the name is still the other file's"),
        (NoRename(over=False), "rename a file over another: the name is still the other file's"),
        (NotExclusive(), "create a file that must not exist: an existing one was opened"),
    ],
)
def test_a_file_system_that_does_something_else_is_refused(data: Path, files: RealFiles, said: str) -> None:
    with pytest.raises(UnsafeFolder, match=REFUSED + said):
        try_folder(data, look, files=files)


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def unlocked(_descriptor: int, _operation: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", unlocked)
    with pytest.raises(UnsafeFolder, match=f"{REFUSED}lock a file: .*{os.strerror(error)}"):
        try_folder(data)


def test_a_lock_that_is_none_is_found_by_another_process(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda _descriptor, _operation: None)
    with pytest.raises(UnsafeFolder, match="another process can lock it as well"):
        try_folder(data)


def test_another_process_that_fails_or_hangs_refuses_the_folder(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "__name__", "no.such.module")
    said = f"another process has failed: {re.escape(sys.executable)}: .*no.such.module"
    with pytest.raises(UnsafeFolder, match=said):
        try_folder(data)
    monkeypatch.setattr(trial, "_LOOK_S", 0.001)
    with pytest.raises(UnsafeFolder, match=r"has not answered for 0\.001 s"):
        try_folder(data)


def test_little_room_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(data)

    class Room:
        f_bavail, f_frsize, f_files, f_favail = 20_000, 4096, real.f_files, 1_000_000

    monkeypatch.setattr(os, "statvfs", lambda _: Room)
    assert try_folder(data, look) == [
        f"the disk of {data} is nearly full: it has room for 82 MB and 1000000 files"
    ]
    Room.f_bavail, Room.f_favail = 1_000_000, 999
    assert [said[-9:] for said in try_folder(data, look)] == ["999 files"]
    Room.f_bavail, Room.f_frsize, Room.f_favail = 128 * 2**20, 1, 1000
    assert try_folder(data, look) == [], "just enough"
    Room.f_bavail -= 1
    assert len(try_folder(data, look)) == 1
    Room.f_bavail += 1
    Room.f_files = Room.f_favail = 0
    assert try_folder(data, look) == [], "a file system that counts no files"


def test_what_a_killed_trial_has_left_goes_after_an_hour_and_what_is_under_way_stays(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in range(1, 6):
        with pytest.raises(Died):
            try_folder(data, look, files=FaultyFiles(fails_at=call, dies=True))
    now_s = 1_700_000_000
    monkeypatch.setattr(time, "time", lambda: float(now_s))
    for age_s in (-3601, -3600, 0, 3600, 3601):
        folder = data / f"trial-{age_s}"
        folder.mkdir()
        (folder / "claim").touch()
        os.utime(folder, (now_s - age_s, now_s - age_s))
    assert try_folder(data, look) == []
    assert {folder.name for folder in data.iterdir()} == {"trial--3600", "trial-0", "trial-3600"}


@pytest.fixture(params=["tmpfs", "ext4", "overlay"])
def mounted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    at = tmp_path / "mounted"
    at.mkdir()
    image, parts = tmp_path / "image", [tmp_path / name for name in ("lower", "upper", "work")]
    if request.param == "ext4":
        with image.open("wb") as file:
            file.truncate(8 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=False, capture_output=True)
    for part in parts:
        part.mkdir()
    layers = ",".join(f"{part.name}{'dir'}={part}" for part in parts)
    options = {
        "tmpfs": ["-t", "tmpfs", "-o", "size=8m", "tmpfs"],
        "ext4": ["-o", "loop", str(image)],
        "overlay": ["-t", "overlay", "-o", layers, "overlay"],
    }[request.param]
    done = subprocess.run(["mount", *options, str(at)], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("no file system of a bounded size can be mounted here")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


@pytest.mark.storm
def test_file_systems_on_which_the_storage_works_are_taken(mounted: Path) -> None:
    said = try_folder(mounted)
    assert all("nearly full" in one for one in said)


@pytest.mark.storm
@pytest.mark.parametrize("mounted", ["tmpfs", "ext4"], indirect=True)
def test_a_full_disk_is_told_and_keeps_nobody(mounted: Path) -> None:
    with contextlib.suppress(OSError), (mounted / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(512))
    (said,) = try_folder(mounted)
    assert said.startswith(f"the data folder {mounted} is not tried, because its disk is full: ")


@pytest.mark.storm
def test_a_disk_that_is_read_only_is_refused_with_the_reason(mounted: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    with pytest.raises(UnsafeFolder, match=os.strerror(errno.EROFS)):
        try_folder(mounted)
