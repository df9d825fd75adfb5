"""The head of a request: the meaning of its header fields, and its path in canonical form."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from api.schema.envelope import NDJSON, RequestRefusal
from api.schema.operation import Operation
from api.server.requests import Fields
from api.settings import Settings

_ENCODINGS: Final = frozenset({b"gzip", b"identity"})
_LENGTH_DIGITS_MAX: Final = 18
_KEY: Final = re.compile(rb"[!-~]{1,255}")
_SEGMENTS_MAX: Final = 16
"""The maximum number of segments. Longer paths are unknown, and not decoded, to save time."""
_ORIGIN: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")


BY_NAME: Final = "name:"
"""Precedes a detector's name where its id may stand."""
_DETECTOR_SEGMENT: Final = 3
_NDJSON_TOO: Final = frozenset(
    {
        *(b"application/ndjson", b"application/jsonl", b"application/jsonlines", b"application/json-lines"),
        *(b"application/x-jsonl", b"application/x-jsonlines", b"application/x-json-lines"),
        *(b"application/x-json-stream", b"text/x-ndjson", b"text/ndjson", b"text/jsonl"),
    }
)
"""Other media types of NDJSON. None is registered, and programs use all of them."""


def authorization(head: Fields) -> bytes | None:
    """Return the Authorization header: None if absent, empty, which is malformed, if repeated."""
    value = head.found.get(b"authorization")
    return b"" if b"authorization" in head.repeated else value


def accepts(head: Fields, media_type: bytes) -> bool:
    """Whether the caller asks for a media type by its name, and does not prefer JSON."""
    value = b",".join([value for name, value in head.headers if name == b"accept"]).decode("latin-1").lower()
    qualities = {name.partition(";")[0]: quality for name, quality in parse_accept_header(value, MIMEAccept)}
    return 0 < qualities.get(media_type.decode(), 0) >= qualities.get("application/json", 0)


def last_event_id(head: Fields) -> int | None:
    """Return the number in Last-Event-ID; None if absent. Raises RequestRefusal 1006."""
    value = next((value for name, value in head.headers if name == b"last-event-id"), None)
    if value is None:
        return None
    if not value.isdigit() or len(value) > _LENGTH_DIGITS_MAX:
        raise RequestRefusal(1006, "Last-Event-ID: expected a whole number")
    return int(value)


def announced_length(head: Fields) -> int | None:
    """Return the Content-Length; None if absent or not a number."""
    value = head.found.get(b"content-length", b"")
    return int(value[:_LENGTH_DIGITS_MAX]) if value.isdigit() else None


def check_length(head: Fields, bytes_max: int) -> int | None:
    """Return the announced length of the body. Raises RequestRefusal 1003 if it is above the limit."""
    length = announced_length(head)
    if length is not None and length > bytes_max:
        raise too_large(bytes_max)
    return length


def body_bytes_max(operation: Operation | None, settings: Settings) -> int:
    """Return the maximum size of an operation's body, or of a body that is read and ignored."""
    if operation is None or operation.body is None:
        return settings.max_discard_bytes
    if operation.is_upload:
        return settings.max_relation_body_bytes
    return settings.max_batch_body_bytes if operation.is_batch else settings.max_body_bytes


def too_large(bytes_max: int) -> RequestRefusal:
    """Return the refusal of a body above the limit."""
    return RequestRefusal(1003, f"the body is larger than {bytes_max} bytes")


def idempotency_key(head: Fields) -> str:
    """Return the Idempotency-Key, empty if there is none. Raises RequestRefusal 1006."""
    if defects := _defects_of_key(head):
        raise RequestRefusal(1006, *defects)
    return head.found.get(b"idempotency-key", b"").decode("ascii")


def _defects_of_key(head: Fields) -> tuple[str, ...]:
    value = head.found.get(b"idempotency-key")
    if value is None:
        return ()
    if b"idempotency-key" in head.repeated:
        return ("Idempotency-Key: expected once, came more than once",)
    if not _KEY.fullmatch(value):
        return ("Idempotency-Key: expected 1 to 255 visible ASCII characters",)
    return ()


def check_headers(
    head: Fields,
    *,
    bytes_max: int,
    media_types: Sequence[bytes],
    takes_key: bool = False,
    takes_any_type: bool = False,
) -> bytes:
    """Validate the headers; return the media type of the body, by default the first of `media_types`.

    `media_types` is empty for an operation without a body. Without `takes_key`, an Idempotency-Key is
    ignored, and with `takes_any_type` the Content-Type. Raises RequestRefusal 1006, with every defect, or
    1002.
    """
    found, repeated = head.found, head.repeated
    defects = []
    if head.size_bytes > bytes_max:
        defects.append(f"the headers are larger than {bytes_max} bytes together")
    if b"upgrade" in found and found[b"upgrade"].strip().lower() == b"websocket":
        # Other upgrades may be ignored, but a WebSocket client does not expect an ordinary response.
        defects.append("Upgrade: the path is not served over WebSocket")
    if not media_types:
        if defects:
            raise RequestRefusal(1006, *defects)
        return b""
    length = found.get(b"content-length")
    if length is not None and not (length.isdigit() and len(length) <= _LENGTH_DIGITS_MAX):
        defects.append("Content-Length: expected a number of bytes")
    if b"content-type" in repeated and not takes_any_type:
        defects.append("Content-Type: expected once, came more than once")
    if takes_key and b"idempotency-key" in found:
        defects += _defects_of_key(head)
    if defects:
        raise RequestRefusal(1006, *defects)
    if b"content-encoding" in found and (
        (encoding := content_encoding(head)) not in _ENCODINGS or b"content-encoding" in repeated
    ):
        shown = encoding.decode("latin-1")[:80]
        raise RequestRefusal(1002, f"expected the Content-Encoding `gzip`, or none, got `{shown}`")
    sent = None if takes_any_type else found.get(b"content-type")
    if sent is None or sent in media_types:
        return sent or media_types[0]
    media_type = media_type_of(sent)
    if media_type not in media_types:
        taken = " or ".join(f"`{one.decode()}`" for one in media_types)
        shown = media_type.decode("latin-1")[:80]
        raise RequestRefusal(1002, f"expected the Content-Type {taken}, got `{shown}`")
    return media_type


def content_encoding(head: Fields) -> bytes:
    """Return the encoding of the body, in lower case; `identity` if there is none."""
    return head.found.get(b"content-encoding", b"identity").strip().lower()


def media_type_of(content_type: bytes) -> bytes:
    """Return a Content-Type without its parameters, in lower case; all types of NDJSON as the same one."""
    media_type = content_type.partition(b";")[0].strip().lower()
    return NDJSON if media_type in _NDJSON_TOO else media_type


def detector_name(raw_path: bytes) -> str | None:
    """Return the name of a detector in a path such as `/api/detectors/name:logins/rules`; else None."""
    origin = _ORIGIN.match(raw_path)
    segments = raw_path[origin.end() if origin else 0 :].split(b"/", _DETECTOR_SEGMENT + 1)
    if len(segments) <= _DETECTOR_SEGMENT:
        return None
    segment = unquote(segments[_DETECTOR_SEGMENT].decode("latin-1"))
    return segment.removeprefix(BY_NAME) if segment.startswith(BY_NAME) else None


def canonical_path(raw_path: bytes) -> str:
    """Return a path with its percent-escapes decoded, except `%2F`, which is part of a segment.

    A path of more than _SEGMENTS_MAX segments is unknown anyway, and is returned unchanged.
    """
    if not raw_path.startswith(b"/"):
        # It has the absolute form, which clients send to proxies.
        origin = _ORIGIN.match(raw_path)
        raw_path = raw_path[origin.end() :] if origin else raw_path
    text = raw_path.decode("latin-1")
    if b"%" not in raw_path:
        return text
    if raw_path.count(b"/") > _SEGMENTS_MAX:
        return text
    segments = []
    for segment in text.split("/"):
        plain = unquote(segment)
        segments.append(segment if "/" in plain else plain)
    return "/".join(segments)
