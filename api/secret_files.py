"""Reads secrets from files, to keep them out of the process list and the shell's history."""

import os
import stat
from pathlib import Path
from typing import Final

SECRET_BYTES_MAX: Final = 4096
"""The maximum size of a file with a secret. A larger file holds something else."""

_VISIBLE: Final = b"!~"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class SecretFileError(ValueError):
    """A file does not hold a secret. The message names the file, but shows none of its contents."""


def read_secret(path: Path) -> str:
    """Return the secret in a file: its only line, without blanks around it. Raises SecretFileError."""
    try:
        # Non-blocking, in case the path is a pipe without a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1) or b""
    except OSError as error:
        raise SecretFileError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if len(data) > SECRET_BYTES_MAX:
        raise SecretFileError(f"{path}: it is larger than {SECRET_BYTES_MAX} bytes")
    lines = data.split()
    if not lines:
        raise SecretFileError(f"{path}: it is empty")
    if len(lines) > 1:
        raise SecretFileError(f"{path}: expected one secret, without blanks, and nothing else")
    if not all(_VISIBLE[0] <= byte <= _VISIBLE[1] for byte in lines[0]):
        raise SecretFileError(f"{path}: expected visible ASCII characters")
    return lines[0].decode("ascii")


def readable_by_others(path: Path) -> str | None:
    """Return a warning if users other than the owner can read or change the file, else None.

    Such a file is still used, because container platforms mount secrets that everyone inside can read.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
    if not mode & _OTHERS:
        return None
    return (
        f"{path} is open to other users (its mode is {mode:04o}); `chmod 600` keeps the secret to its owner"
    )
