"""What changes in a folder, and which calls would change or lock a file."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


def state_of(data: Path) -> dict[str, tuple[bytes, int, int]]:
    found = {}
    for path in [data, *sorted(data.rglob("*"))]:
        status = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (content, status.st_mtime_ns, status.st_ctime_ns)
    return found


_watched: list[tuple[str, tuple[object, ...]]] | None = None
_CHANGES = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.utime",
    "os.chmod",
    "os.truncate",
    "os.link",
    *("fcntl.flock", "fcntl.lockf", "fcntl.fcntl"),
)


def _watch(name: str, arguments: tuple[object, ...]) -> None:
    if _watched is None:
        return
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    opens = name == "open" and isinstance(arguments[2], int) and arguments[2] & writes
    if opens or name in _CHANGES:
        _watched.append((name, arguments))


@cache
def _watch_this_process() -> None:
    # It stays, and makes all that follows slower.
    sys.addaudithook(_watch)


@contextmanager
def watched() -> Iterator[list[tuple[str, tuple[object, ...]]]]:
    """Every call to the system that would change or lock a file, while the context lasts."""
    _watch_this_process()
    global _watched  # noqa: PLW0603 -- an audit hook cannot be taken away again
    _watched = []
    try:
        yield _watched
    finally:
        _watched = None
