"""A data folder's identity: a random id, written once, that tells the right folder from every other one.

A node that lacks the mount has an empty folder in its place. Whoever opens the data folder for a service
expects the id that the service found at its start, and refuses a folder with another id or none.
"""

import errno
import os
import re
import secrets
import socket
import stat
from pathlib import Path
from typing import Final

from snapshots.errors import Damaged, NewerFormat, StorageError, WrongFolder
from snapshots.files import Files, RealFiles, write_all
from snapshots.takeover.lock import FolderLock

IDENTITY_NAME: Final = "identity"
FORMAT: Final = 1

_FIRST_LINE: Final = re.compile(rb"rule-detector data folder, format ([0-9]{1,9})\n")
_FORMAT_1: Final = re.compile(rb"rule-detector data folder, format 1\nid ([0-9a-f]{32})\n")
_SUBFOLDERS: Final = ("directory", "detectors")
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.EACCES, errno.EROFS})


def begin_folder(folder: Path, *, lock_wait_s: float = 0.0, files: Files | None = None) -> str:
    """Give the id of a data folder; make the folder where it is missing, and the id where there is none.

    For whoever starts a service or works on the folder offline; all others expect an id. Raises StorageError:
    FolderInUse where an id is to be made and another process holds the folder, and where others than this
    user can write to the folder.
    """
    files = files or RealFiles()
    try:
        files.make_folder(folder)
        _refuse_unsafe(folder)
        identity = read_identity(folder, files)
        if identity is None:
            with FolderLock(folder, wait_s=lock_wait_s):
                # Another process may have been first.
                identity = read_identity(folder, files) or _write(folder, files)
    except OSError as error:
        raise StorageError(f"the data folder {folder} cannot be used: {error}") from error
    return identity


def read_identity(folder: Path, files: Files) -> str | None:
    """Give the id of a folder, None where it has none. Raises Damaged, NewerFormat, OSError."""
    path = folder / IDENTITY_NAME
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
            f"{path} is damaged and does not tell the folder's id; if this is the right folder, remove the "
            "file while no service runs, and the next start gives the folder a new id"
        )
    return found[1].decode()


def check_identity(folder: Path, expected: str, files: Files) -> None:
    """Refuse a folder that has another id or none: WrongFolder. Raises Damaged, NewerFormat, OSError.

    Changes nothing.
    """
    found = read_identity(folder, files)
    if found != expected:
        told = "no id" if found is None else f"the id {found}"
        raise WrongFolder(
            f"{folder} on {socket.gethostname()} is not the service's data folder: it has {told}, and the "
            f"service's has the id {expected}; is the right file system mounted there?"
        )


def _write(folder: Path, files: Files) -> str:
    """Make an id, durably. For whoever holds the lock."""
    identity = secrets.token_hex(16)
    path = folder / IDENTITY_NAME
    unfinished = folder / f"{IDENTITY_NAME}.unfinished"
    if unfinished.name in files.names(folder):
        # Whoever wrote it died before it had its name.
        files.remove(unfinished)
    file = files.create(unfinished)
    try:
        write_all(file, b"rule-detector data folder, format 1\nid %s\n" % identity.encode())
        file.sync()
    finally:
        file.close()
    files.rename(unfinished, path)
    files.sync_folder(folder)
    try:
        # Whoever made the folder may have died before its name was on the disk.
        files.sync_folder(folder.parent)
    except OSError as error:
        # The place of a mount may be in an image that is never written to.
        if error.errno not in _CANNOT_SYNC:
            raise
    return identity


def _refuse_unsafe(folder: Path) -> None:
    """Refuse a folder to which anyone but this user can write. Raises StorageError."""
    for place in (folder, *(folder / name for name in _SUBFOLDERS)):
        try:
            status = place.stat()
        except FileNotFoundError:
            continue
        if status.st_uid != os.geteuid():
            raise StorageError(
                f"{place} belongs to the user with id {status.st_uid}, and this process runs as user "
                f"{os.geteuid()}: run it as the owner, or name a folder that does not exist yet"
            )
        if status.st_mode & _WRITABLE_BY_OTHERS:
            raise StorageError(
                f"other users can write to {place} (mode {stat.S_IMODE(status.st_mode):o}): run "
                f"`chmod go-w {place}`, or name a folder that does not exist yet"
            )
