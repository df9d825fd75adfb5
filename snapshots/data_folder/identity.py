"""A data folder's identity: a random id, written once, that distinguishes the right folder from all others.

On a machine without the mount, an empty folder is in its place. Every process of a service expects the id
that the service found at its start, and refuses a folder with another id or none.
"""

import errno
import functools
import re
import secrets
import socket
from pathlib import Path
from typing import Final

from snapshots.data_folder.lock import FolderLock
from snapshots.data_folder.mounts import check_mount
from snapshots.data_folder.permissions import refuse_unsafe, unusable
from snapshots.errors import Damaged, NewerFormat, WrongFolder
from snapshots.files import Files, RealFiles, write_all

IDENTITY_NAME: Final = "identity"
FORMAT: Final = 1

_FIRST_LINE: Final = re.compile(rb"rule-detector data folder, format ([0-9]{1,9})\n")
_FORMAT_1: Final = re.compile(rb"rule-detector data folder, format 1\nid ([0-9a-f]{32})\n")
_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.EACCES, errno.EROFS})


def begin_folder(
    folder: Path, *, lock_wait_s: float = 0.0, must_exist: bool = False, files: Files | None = None
) -> str:
    """Return the id of a data folder. Creates a missing folder, and a missing id.

    For the start of a service and for offline commands; other code uses `check_identity`. Raises StorageError
    if the folder or its mount is unsafe, FolderInUse if it needs an id and another process holds the lock,
    WrongFolder if it has no id but `must_exist`.
    """
    files = files or RealFiles()
    try:
        if must_exist and read_identity(folder, files) is None:
            raise WrongFolder(
                f"{folder} on {socket.gethostname()} is no data folder yet: it has no id; is the right file "
                "system mounted there? if it is, start once without --existing-data"
            )
        files.make_folder(folder)
        refuse_unsafe(folder)
        check_mount(folder, files)
        identity = read_identity(folder, files)
        if identity is None:
            with FolderLock(folder, wait_s=lock_wait_s):
                # Another process may have written the id meanwhile.
                identity = read_identity(folder, files) or _write(folder, files)
    except OSError as error:
        raise unusable(folder, error) from error
    return identity


def read_identity(folder: Path, files: Files) -> str | None:
    """Return the id of a folder; None if it has none. Raises Damaged, NewerFormat, OSError."""
    path = _path_in(folder)
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    first = _FIRST_LINE.match(data)
    if first is not None and int(first[1]) > FORMAT:
        raise NewerFormat(f"{path} has format {int(first[1])}; this program knows formats up to {FORMAT}")
    found = _FORMAT_1.fullmatch(data)
    if found is None:
        raise Damaged(
            f"{path} is damaged, so the folder's id is unknown; if this is the right folder, remove the "
            "file while no service runs, and the next start without --existing-data gives the folder a new id"
        )
    return found[1].decode()


def check_identity(folder: Path, expected: str, files: Files) -> None:
    """Raise WrongFolder if a folder has another id or none. Raises Damaged, NewerFormat, OSError."""
    found = read_identity(folder, files)
    if found != expected:
        has = "no id" if found is None else f"the id {found}"
        raise WrongFolder(
            f"{folder} on {socket.gethostname()} is not the service's data folder: it has {has}, and the "
            f"service's has the id {expected}; is the right file system mounted there?"
        )


# Cached, because making a path takes longer than reading its file.
@functools.lru_cache(4)
def _path_in(folder: Path) -> Path:
    return folder / IDENTITY_NAME


def _content(identity: str) -> bytes:
    return b"rule-detector data folder, format 1\nid %s\n" % identity.encode()


def _write(folder: Path, files: Files) -> str:
    """Write and sync a new id. The caller holds the lock."""
    identity = secrets.token_hex(16)
    path = folder / IDENTITY_NAME
    unfinished = folder / f"{IDENTITY_NAME}.unfinished"
    if unfinished.name in files.names(folder):
        # Its writer died before the rename.
        files.remove(unfinished)
    file = files.create(unfinished)
    try:
        write_all(file, _content(identity))
        file.sync()
    finally:
        file.close()
    files.rename(unfinished, path)
    files.sync_folder(folder)
    try:
        # The process that created the folder may have died before its name was on the disk.
        files.sync_folder(folder.parent)
    except OSError as error:
        # The mount point may be in a read-only image.
        if error.errno not in _CANNOT_SYNC:
            raise
    return identity
