"""A file that a command writes: whole at its end, or left as it was."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from api.cli.failures import CommandError


@contextmanager
def output_file(path: str) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of the one at `path` at the end; after an error, that one stays.

    A pipe or a device is written itself. Raises CommandError if the file cannot be written.
    """
    try:
        # A symbolic link goes on naming the file.
        target = Path(path).resolve()
        status = target.stat() if target.exists() else None
        if status is not None and not stat.S_ISREG(status.st_mode):
            with target.open("wb") as file:
                yield file
            return
        with _replacing(target, status) as file:
            yield file
    except OSError as error:
        raise CommandError(f"{path}: {(error.strerror or str(error)).lower()}") from None


@contextmanager
def _replacing(target: Path, status: os.stat_result | None) -> Iterator[IO[bytes]]:
    if status is not None:
        # Fails where the user may not write the file, although its folder would let it be replaced.
        target.open("ab").close()
    beside = target.with_name(f".rule-detector-{secrets.token_hex(8)}.unfinished")
    file = beside.open("xb")
    try:
        with file:
            if status is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
            yield file
        beside.replace(target)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
