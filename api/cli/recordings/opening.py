"""Opens the bytes of recordings: gzip is unpacked, and UTF-16 becomes UTF-8."""

import codecs
import gzip
import io
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from api.cli.recordings.documents import reason_of
from api.cli.recordings.rows import READ_BYTES
from api.cli.recordings.skipping import RecordingError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_GZIP: Final = b"\x1f\x8b"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_UTF_16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


def opened(path: str) -> io.BufferedReader:
    """Return the bytes of a file as they are. Raises RecordingError."""
    try:
        return cast("io.BufferedReader", Path(path).open("rb", READ_BYTES))
    except OSError as error:
        raise RecordingError(f"{path}: {reason_of(error)}") from None


def decoded(source: io.BufferedReader) -> io.BufferedReader:
    """Return the bytes of a recording in UTF-8; the first two bytes show gzip and UTF-16.

    Raises OSError, EOFError and zlib.error.
    """
    text = source
    if source.peek().startswith(_GZIP):
        text = io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=source)), READ_BYTES)
    if form := _utf_16_form(text.peek()[:2]):
        text = io.BufferedReader(_Utf16(text, form), READ_BYTES)
    if text.peek().startswith(_BYTE_ORDER_MARK):
        text.read(len(_BYTE_ORDER_MARK))
    return text


class _Utf16(io.RawIOBase):
    """Bytes in UTF-16 read as UTF-8."""

    def __init__(self, source: io.BufferedReader, form: str) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder(form)("replace")
        self._ready = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Read the source's next bytes, or a part of them."""
        while not self._ready:
            raw = self._source.read1(READ_BYTES)
            self._ready = self._decoder.decode(raw, final=not raw).encode("utf-8", "replace")
            if not raw:
                break
        view = memoryview(buffer).cast("B")
        given, self._ready = self._ready[: len(view)], self._ready[len(view) :]
        view[: len(given)] = given
        return len(given)


def _utf_16_form(start: bytes) -> str | None:
    """Return the form of UTF-16 of a text; None for UTF-8, which has no zero among the first two bytes."""
    if start in _UTF_16_MARKS:
        return "utf-16"
    if len(start) < len(_UTF_16_MARKS[0]) or 0 not in start or not any(start):
        return None
    return "utf-16-be" if start[0] == 0 else "utf-16-le"
