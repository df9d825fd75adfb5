"""Tests, before a service starts, whether the data folder's file system does what the storage relies on."""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from snapshots.data_folder.mounts import check_mount
from snapshots.data_folder.permissions import unusable
from snapshots.errors import UnsafeFolder
from snapshots.files import FILE_MODE, FULL, Files, OpenFile, RealFiles, write_all

_PREFIX: Final = "trial-"
_FORGOTTEN_S: Final = 3600
_LOOK_S: Final = 30
_ROOM_BYTES: Final = 128 * 1024 * 1024
"""The required free space: two segments of a journal."""
_ROOM_FILES: Final = 1000
_LOCKS: Final = "use a file system with locks (NFS: version 4, without `nolock` and `local_lock`)"
_AT_ONCE: Final = "mount it so that all see at once what one of them changes (NFS: `noac`)"


class Seen(NamedTuple):
    """The findings of another process in the folder of a trial."""

    names: list[str]
    claim: str | None
    """The content of the file `claim`; None if it is not there."""
    locked: bool


Look = Callable[[Path, str], Seen]
"""Calls `look` in another process. Raises OSError if it fails or does not answer."""


class _UnmetError(Exception):
    """The file system did not behave as expected; the message says how."""


def try_folder(
    data: Path, look: Look | None = None, *, peer: str = "another process", files: Files | None = None
) -> list[str]:
    """Test a data folder together with another process, `peer`; return warnings for the operator.

    On a full disk nothing is tested, because a service on it can still be read. Raises UnsafeFolder, which
    says what does not work and how to fix it.
    """
    files = files or RealFiles()
    folder = data / f"{_PREFIX}{secrets.token_hex(8)}"
    doubtful = check_mount(data, files)
    try:
        with _trying(folder, "to list or close files", "use another file system"), ExitStack() as opened:
            _remove_forgotten(data)
            _try(folder, look or look_from_a_process, peer, files, opened)
        with _trying(folder, "to tell its free room", "use another file system"):
            return [*_little_room(data), *([doubtful] if doubtful else [])]
    except OSError as error:
        # `_trying` turns all errors but NoRoom into UnsafeFolder.
        return [f"the data folder {data} is not tried, because its disk is full: {error}"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _try(folder: Path, look: Look, peer: str, files: Files, opened: ExitStack) -> None:
    def create(name: str, text: str = "") -> OpenFile:
        file = files.create(folder / name)
        opened.callback(file.close)
        write_all(file, text.encode())
        file.sync()
        return file

    claim, secret = folder / "claim", folder.name
    with _trying(folder, "to create and sync a folder", "use a file system that can sync folders"):
        files.make_folder(folder)
        files.sync_folder(folder)
    with _trying(folder, "to create a file that must not exist", "use another file system"):
        old = create(claim.name)
        with contextlib.suppress(FileExistsError):
            create(claim.name)
            raise _UnmetError("an existing one was opened")
    with _trying(folder, "to rename a file over another", "use another file system"):
        new = create("new", secret)
        files.rename(folder / "new", claim)
        _expect(new.is_named(claim) and not old.is_named(claim), "the name is still the other file's")
    with _trying(folder, "to lock a file", _LOCKS):
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        opened.callback(lambda: os.close(lock))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with _trying(folder, "to show changes at once", _AT_ONCE):
        seen = look(folder, "first")
        _expect(seen.names == ["claim", "lock"] and seen.claim == secret, f"{peer} does not see a new file")
        _expect("first" in files.names(folder), f"a file that {peer} has created is not seen")
    with _trying(folder, "to lock a file", _LOCKS):
        _expect(seen.locked, f"{peer} can lock it as well")
        fcntl.flock(lock, fcntl.LOCK_UN)
    with _trying(folder, "to show changes at once", _AT_ONCE):
        files.remove(claim)
        create("later")
        seen = look(folder, "second")
        _expect(seen.claim is None and "claim" not in seen.names, f"{peer} still sees a removed file")
        _expect("later" in seen.names, f"{peer} does not see a new file")
    with _trying(folder, "to lock a file", _LOCKS):
        _expect(not seen.locked, f"{peer} cannot lock it after its release")


def look(folder: Path, create: str) -> Seen:
    """Read the folder of a trial, then create a file there. Raises OSError."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 -- as the storage does
        with (folder / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked = False
            except BlockingIOError:
                locked = True
    except FileNotFoundError:
        return Seen([], None, locked=False)
    try:
        claim = (folder / "claim").read_text()
    except FileNotFoundError:
        claim = None
    (folder / create).touch(FILE_MODE)
    return Seen(names, claim, locked)


def look_from_a_process(folder: Path, create: str) -> Seen:
    """Call `look` in another process on this machine. Raises OSError."""
    command = [sys.executable, "-P", "-m", __name__, str(folder), create]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LOOK_S)  # noqa: S603 -- itself
    except subprocess.TimeoutExpired:
        raise OSError(f"another process has not answered for {_LOOK_S} s") from None
    except subprocess.CalledProcessError as error:
        raise OSError(f"another process has failed: {error.stderr.strip()}") from None
    return Seen(*json.loads(ended.stdout))


@contextmanager
def _trying(folder: Path, what: str, mend: str) -> Iterator[None]:
    try:
        yield
    except (OSError, _UnmetError) as error:
        if isinstance(error, OSError) and error.errno in FULL:
            raise
        if isinstance(error, PermissionError):
            raise UnsafeFolder(str(unusable(folder.parent, error))) from error
        raise UnsafeFolder(
            f"the data folder {folder.parent} cannot be used, because its file system fails {what}: {error}; "
            f"{mend}"
        ) from error


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _UnmetError(otherwise)


def _little_room(data: Path) -> list[str]:
    room = os.statvfs(data)
    bytes_ = room.f_bavail * room.f_frsize
    # A file system without a limit on files reports a total of 0.
    files = room.f_favail if room.f_files else _ROOM_FILES
    if bytes_ >= _ROOM_BYTES and files >= _ROOM_FILES:
        return []
    return [f"the disk of {data} is nearly full: it has room for {bytes_ / 1e6:.0f} MB and {files} files"]


def _remove_forgotten(data: Path) -> None:
    """Remove the folders of trials whose processes were killed."""
    for folder in data.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if abs(time.time() - folder.stat().st_mtime) > _FORGOTTEN_S:
                shutil.rmtree(folder)


if __name__ == "__main__":
    print(json.dumps(look(Path(sys.argv[1]), sys.argv[2]), allow_nan=False))  # noqa: T201 -- its answer
