"""Prints text from servers and files without letting it control the reader's terminal.

All commands write to standard output and standard error through the streams of this file. They escape
control characters and those that change the direction of text, so that a name or a log line can neither move
the cursor nor write to the clipboard.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, TextIO, cast

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


class EscapingStream:
    """A text stream that escapes what is written to it, as text or as UTF-8 to its `buffer`."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.rich_proxied_file = stream
        """The unescaped stream for rich, whose tables and bars have control sequences."""

    def write(self, text: str) -> int:
        """Write a text with its control characters escaped."""
        self._stream.write(escaped(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines with their control characters escaped."""
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> "_EscapingBuffer":
        """The stream's bytes."""
        return _EscapingBuffer(cast("IO[bytes]", getattr(self._stream, "buffer")))  # noqa: B009 -- mypy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _EscapingBuffer:
    """A binary stream of UTF-8 that escapes what is written to it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, data: bytes) -> int:
        self._stream.write(escaped(bytes(data).decode("utf-8", "surrogateescape")).encode())
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def escaping_streams() -> Iterator[None]:
    """Escape everything that is printed within this context."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", EscapingStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
