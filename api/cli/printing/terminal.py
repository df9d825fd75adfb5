"""Prints text from servers and files without letting it control the reader's terminal.

All commands write to standard output and standard error through the streams of this file. They escape
control characters and those that change the direction of text, so that a name or a log line can neither move
the cursor nor write to the clipboard.
"""

import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, TextIO, cast

from api.cli.messages import CommandError

_UNSAFE: Final = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    # Line and paragraph separators, and marks, overrides and isolates of direction.
    "\u2028-\u202e\u2066-\u2069"
    # Halves of surrogate pairs, which no stream can encode.
    "\ud800-\udfff"
)
_IN_TEXT: Final = re.compile(f"[{_UNSAFE}]|\r(?!\n)")
_IN_LINE: Final = re.compile(f"[{_UNSAFE}\t\n\r]")
_ASCII_CONTROL_MAX: Final = 0x1F


def escaped(text: str) -> str:
    r"""Return a text of lines with its control characters as `\x1b`; from U+007F on as `\u009b`.

    JSON stays JSON of the same value: it has none below U+0020, and writes the others in the same way.
    """
    return _IN_TEXT.sub(_escape, text)


def on_one_line(text: str) -> str:
    """Return a text for use within a line: tabs and line ends are escaped, too."""
    return _IN_LINE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= _ASCII_CONTROL_MAX else f"\\u{code:04x}"


class _Stream:
    """A stream that, if `is_told`, says if it cannot be written, as on a full disk."""

    def __init__(self, stream: IO[Any], *, is_told: bool = False) -> None:
        self._stream = stream
        self._told = partial(_told, stream) if is_told else nullcontext

    def write(self, data: Any) -> int:
        """Write text or bytes."""
        # click writes nothing, to see whether a stream takes bytes, and forgets the error.
        if data:
            with self._told():
                self._stream.write(data)
        return len(data)

    def flush(self) -> None:
        """Write what is buffered."""
        with self._told():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class EscapingStream(_Stream):
    """A text stream that escapes what is written to it, as text or as UTF-8 to its `buffer`."""

    def __init__(self, stream: IO[str], *, is_told: bool = False) -> None:
        super().__init__(stream, is_told=is_told)
        self._is_told = is_told
        self.rich_proxied_file = _Stream(stream, is_told=is_told)
        """The unescaped stream for rich, whose tables and bars have control sequences."""

    def write(self, data: str) -> int:
        """Write a text with its control characters escaped."""
        super().write(escaped(data))
        return len(data)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines with their control characters escaped."""
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> "_EscapingBuffer":
        """The stream's bytes."""
        buffer = getattr(self._stream, "buffer")  # noqa: B009 -- mypy
        return _EscapingBuffer(buffer, is_told=self._is_told)


class _EscapingBuffer(_Stream):
    """A binary stream of UTF-8 that escapes what is written to it."""

    def write(self, data: bytes) -> int:
        super().write(escaped(bytes(data).decode("utf-8", "surrogateescape")).encode())
        return len(data)


@contextmanager
def _told(stream: IO[Any]) -> Iterator[None]:
    """Raise CommandError if the stream cannot be written, as on a full disk, and discard its further output.

    A closed pipe stays a BrokenPipeError, at which click ends the command silently.
    """
    try:
        yield
    except OSError as error:
        # Otherwise Python would fail once more when it writes what is buffered at its end.
        with suppress(io.UnsupportedOperation), Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), stream.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"the output cannot be written: {reason}") from None


@contextmanager
def escaping_streams() -> Iterator[None]:
    """Escape everything that is printed within this context, also what the stream's encoding lacks.

    What is buffered is written at the end. Exits with status 1 if that fails. Messages and logs, on standard
    error, may be lost: a service outlives a full disk.
    """
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    escaping = EscapingStream(sys.stdout, is_told=True)
    sys.stdout, sys.stderr = cast("TextIO", escaping), cast("TextIO", EscapingStream(sys.stderr))
    try:
        yield
    finally:
        try:
            escaping.flush()
        except CommandError as error:
            error.show()
            sys.exit(error.exit_code)
        except BrokenPipeError:
            sys.exit(1)
        finally:
            sys.stdout, sys.stderr = before
