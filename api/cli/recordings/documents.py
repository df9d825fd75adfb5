"""Events in JSON: an object on each line, or the elements of an array."""

import io
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from gzip import BadGzipFile
from itertools import chain, count
from typing import Any, Final

import msgspec

from api.cli.recordings.skipping import RecordingError, Skipping
from engine.language.diagnostics import quoted

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The maximum size of a line, and of a CSV row in characters. A few kilobytes of gzip can hold gigabytes."""

DOCUMENT_BYTES_MAX: Final = 256 * 1024 * 1024
"""The maximum size of a document whose array holds the events; it is held in memory."""

NESTING_MAX: Final = 64
"""The maximum nesting of objects and arrays in an event."""

_PORTION_BYTES: Final = 64 * 1024
"""The bytes read at once: so few that the results stay in the processor's caches."""

_DECODE_OBJECT: Final = msgspec.json.Decoder(dict[str, Any]).decode

Row = tuple[int, dict[str, Any], bytes | None]
"""Line number, fields, and the JSON text of the fields if the recording is JSON."""

_HAS_BREAKS: Final = (
    "; each line must be a whole JSON object, as `jq -c .` writes them, or `--records PATH` names the array "
    "of events in a document"
)
_IS_TEXT: Final = "; lines of text need --pattern"


def lines_of(source: io.BufferedReader, name: str, bytes_max: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers. Raises RecordingError at a line that is too long."""
    for number in count(1):
        raw = source.readline(bytes_max + 1)
        if not raw:
            return
        if len(raw) > bytes_max:
            raise _too_long(name, number, bytes_max)
        yield number, raw


def _too_long(name: str, number: int, bytes_max: int) -> RecordingError:
    return RecordingError(f"{name}, line {number}: it is longer than {bytes_max >> 20} MiB")


def json_rows(source: io.BufferedReader, skipping: Skipping) -> Generator[list[Row], None, None]:
    """Yield the JSON objects of the lines, many at once; skip other lines."""
    for first, chunk in _whole_lines(source, skipping.name):
        texts = list(map(bytes.strip, chunk.split(b"\n")))
        if not texts[-1]:
            texts.pop()
        rows: list[Row] = []
        # Each object has a bracket, so no object has more brackets than all less one for each other object.
        if chunk.count(b"{") + chunk.count(b"[") - len(texts) < NESTING_MAX:
            with suppress(ValueError, RecursionError):
                rows = [(number, _DECODE_OBJECT(text), text) for number, text in enumerate(texts, first)]
        if not rows:
            for number, text in enumerate(texts, first):
                if not text:
                    continue
                try:
                    rows.append((number, _event_in(text), text))
                except ValueError as error:
                    if rows:
                        yield rows
                        rows = []
                    hint = _HAS_BREAKS if str(error).endswith("truncated") and not skipping.has_events else ""
                    skipping.skip(number, "without a JSON object", str(error), hint, _shown(text))
        if rows:
            yield rows


def _whole_lines(source: io.BufferedReader, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines that have arrived, with the number of the first; a cut line is yielded alone.

    Raises RecordingError at a line that is too long.
    """
    number = 1
    while chunk := source.read1(_PORTION_BYTES):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield number, chunk[:end]
            number += chunk.count(b"\n")
        if begun := chunk[end:]:
            begun += source.readline(LINE_BYTES_MAX + 1 - len(begun))
            if len(begun) > LINE_BYTES_MAX:
                raise _too_long(name, number, LINE_BYTES_MAX)
            yield number, begun
            number += 1


def document_rows(source: io.BufferedReader, path: str, skipping: Skipping) -> Generator[Row, None, None]:
    """Yield the elements of the array at `path` in a document, or in the document on each line.

    An empty path means that the document itself is the array. Events are numbered from 1, like lines.
    Raises RecordingError if the first document cannot be read.
    """
    name, events = skipping.name, 0
    for number, raw in lines_of(source, name, DOCUMENT_BYTES_MAX):
        text = raw.strip()
        if not text:
            continue
        try:
            elements = _elements(text, path)
        except (ValueError, RecursionError) as error:
            if events or not reason_of(error).endswith("truncated"):
                if not events and text[:1] == b"[" and not isinstance(error, msgspec.ValidationError):
                    said = f"no JSON array of events{_IS_TEXT}: {quoted(_shown(text))}"
                    raise RecordingError(f"{name}, line {number}: {said}") from None
                skipping.skip(number, "without such an array", _reason(error, path), "", _shown(text))
                continue
            # The document has several lines.
            elements = _elements_of_rest(raw, source, name, path)
        for element in elements:
            events += 1
            text = bytes(element)
            try:
                yield events, _event_in(text), text
            except ValueError as error:
                skipping.skip(events, "without a JSON object", str(error), "", _shown(text))


def _elements_of_rest(begun: bytes, source: io.BufferedReader, name: str, path: str) -> list[msgspec.Raw]:
    """Return the elements of a document, given its beginning. Raises RecordingError."""
    document = begun + source.read(DOCUMENT_BYTES_MAX + 1 - len(begun))
    if len(document) > DOCUMENT_BYTES_MAX:
        raise RecordingError(
            f"{name}: the document is longer than {DOCUMENT_BYTES_MAX >> 20} MiB; "
            f"`jq -c '{'.' + path if path else ''}[]'` writes its events as lines"
        )
    try:
        return _elements(document, path)
    except (ValueError, RecursionError) as error:
        hint = _IS_TEXT if begun.lstrip()[:1] == b"[" else ""
        raise RecordingError(f"{name}: {_reason(error, path)}{hint}") from None


def _elements(document: bytes | msgspec.Raw, path: str) -> list[msgspec.Raw]:
    """Return the elements of the array at a path as raw JSON. Raises ValueError."""
    if not path:
        return msgspec.json.decode(document, type=list[msgspec.Raw])
    members = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    # As in conditions, the longest run of the path's parts that is a member counts.
    ends = [len(path), *(end for end in reversed(range(len(path))) if path[end] == ".")]
    run = next((path[:end] for end in ends if path[:end] in members), None)
    if run is None:
        raise msgspec.ValidationError(f"it has no member {quoted(path.partition('.')[0])}")
    return _elements(members[run], path[len(run) + 1 :])


def _reason(error: Exception, path: str) -> str:
    if isinstance(error, msgspec.ValidationError):
        return f"no array of events{f' at {quoted(path)}' if path else ''}: {reason_of(error)}"
    return f"not JSON: {reason_of(error)}"


def _event_in(text: bytes) -> dict[str, Any]:
    """Return the fields of an event. Raises ValueError, which says what the text is instead."""
    try:
        fields = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {reason_of(error)}") from None
    if not isinstance(fields, dict):
        hint = "; `jq -c '.[]'` writes the elements of an array so" if isinstance(fields, list) else ""
        raise ValueError(f"expected one JSON object a line{hint}")  # noqa: TRY004 -- the text is wrong
    # Most lines have too few brackets to be nested too deeply.
    if text.count(b"{") + text.count(b"[") > NESTING_MAX and _is_deeper(fields, NESTING_MAX):
        raise ValueError(f"it is nested more than {NESTING_MAX} deep")
    return fields


def event_as_sent(fields: dict[str, Any]) -> tuple[dict[str, Any], float] | None:
    """Return fields and `timestamp_ms` of an event in the service's format; None for any other object.

    The event stands alone, or is the only member of the body of an evaluation.
    """
    match fields if len(fields) != 1 else fields.get("event"):
        case {"fields": dict(inner), "timestamp_ms": int() | float() as time, **others} if not others:
            return inner, time
        case _:
            return None


def any_may_be_as_sent(rows: Iterable[Row]) -> bool:
    """Return whether any row with a time field may hold an event in the service's format."""
    return any("fields" in fields and len(fields) == len(("fields", "timestamp_ms")) for _, fields, _ in rows)


def _is_deeper(value: object, depth: int) -> bool:
    """Return whether objects and arrays are nested more than `depth` deep."""
    level: list[object] = [value]
    for _ in range(depth + 1):
        members: list[Iterable[object]] = [
            one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)
        ]
        if not members:
            return False
        level = list(chain.from_iterable(members))
    return True


def _shown(text: bytes) -> str:
    return text[:1000].decode("utf-8", "replace")


def reason_of(error: Exception) -> str:
    """Return in a few words why a recording cannot be read."""
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return "it is not valid UTF-8"
        case OSError(strerror=str(reason)):
            return reason.lower()
        case BadGzipFile() if str(error).startswith("Not a gzipped file"):
            # The beginning is what gzip files begin with.
            return "what follows its gzipped data is not gzipped"
        case msgspec.ValidationError():
            return str(error)
        case _:
            return str(error).removeprefix("JSON is malformed: ").lower()
