"""The body sent for a firing: one of three documents, or a file with placeholders."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from string import Template
from typing import Any, Final

import msgspec

from api.cli.printing.output import keys_text, value_text
from api.cli.recordings.times import iso
from rule_detector_client import Detector, Firing

JSON: Final = "application/json"
_SUMMARY_CHARS: Final = 1_000
"""The maximum length of a summary; PagerDuty refuses more than 1 024."""
_DIGEST_DIGITS: Final = 32
_EVENT_TYPE: Final = "rule-detector.firing"
_FOR_SLACK: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""Slack treats `<` as the beginning of a link, or of a mention of everyone."""


class TemplateError(ValueError):
    """A template cannot be used; the message names the file."""


@dataclass(frozen=True, slots=True)
class Form:
    """Makes the bodies of requests of one content type."""

    content_type: str
    body: Callable[[Detector, Firing], bytes]


def form_of(template: str) -> Form:
    """Return the form of that name, or the one in that file. Raises TemplateError."""
    if template in FORMS:
        return FORMS[template]
    path = Path(template)
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise TemplateError(f"{path}: it is not UTF-8") from None
    except OSError as error:
        raise TemplateError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if path.suffix != ".json":
        filled = _checked(text, path)
        return Form("text/plain; charset=utf-8", lambda *about: filled.substitute(_Values(*about)).encode())
    try:
        document = json.loads(text)
    except ValueError as error:
        raise TemplateError(f"{path}: it is not JSON: {error}") from None
    _fill(document, lambda string: _checked(string, path))
    return Form(JSON, lambda *about: as_json(_fill(document, _Values(*about).in_json)))


def as_json(document: object) -> bytes:
    """Return a document as JSON on one line."""
    # The standard encoder, because msgspec writes no integers beyond 64 bits.
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


# The documents


def generic(detector: Detector, firing: Firing) -> dict[str, Any]:
    """Return the firing as received from the service, with the detector."""
    about = {"detectorId": detector.id, "detector": detector.name}
    return {**about, **msgspec.to_builtins(firing, builtin_types=(int,))}


def _slack(detector: Detector, firing: Firing) -> dict[str, Any]:
    values = _Values(detector, firing)
    lines = Template("*$rule*  $keys\n$time  $detector").substitute(values)
    if firing.found:
        lines += f"\n{values['found']}"
    if firing.suppressed:
        lines += f"\n{firing.suppressed} more were held back before"
    return {"text": lines.translate(_FOR_SLACK)}


def _cloud_event(detector: Detector, firing: Firing) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": str(firing.seq),
        "source": f"/api/detectors/{detector.id}",
        "type": _EVENT_TYPE,
        "subject": firing.name,
        "time": _time(firing),
        "datacontenttype": JSON,
        "data": generic(detector, firing),
    }


FORMS: Final = {
    "generic": Form(JSON, lambda *about: as_json(generic(*about))),
    "slack": Form(JSON, lambda *about: as_json(_slack(*about))),
    "cloudevents": Form(
        "application/cloudevents+json; charset=utf-8", lambda *about: as_json(_cloud_event(*about))
    ),
}


# Files with placeholders


class _Placeholders(Template):
    """`$name`, `${name}`, and `${keys.NAME}` for a member of an object."""

    braceidpattern = "[^}]+"


PLACEHOLDERS: Final = (
    *("detector", "detector_id", "rule", "rule_id", "priority", "seq", "time", "time_ms"),
    *("keys", "found", "labels", "suppressed", "timed", "why", "summary", "keys_digest"),
)
_OBJECTS: Final = {"keys", "found", "labels"}


class _Values(dict[str, str]):
    """The values of placeholders for one firing, as texts. Missing members of objects are empty."""

    def __init__(self, detector: Detector, firing: Firing) -> None:
        super().__init__()
        self._values = {
            **generic(detector, firing),
            **{name: getattr(firing, name) for name in ("suppressed", "timed", "why")},
            "detector_id": detector.id,
            "rule": firing.name,
            "rule_id": firing.rule_id,
            "time": _time(firing),
            "found": firing.found or {},
            "labels": firing.labels,
            "summary": _cut(f"{firing.name}  {keys_text(firing.keys)}".rstrip()),
            "keys_digest": sha256(as_json(firing.keys)).hexdigest()[:_DIGEST_DIGITS],
        }

    def value(self, name: str) -> Any:
        """Return the value of a placeholder."""
        object_, dot, member = name.partition(".")
        found = self._values[object_]
        return found.get(member, "") if dot else found

    def in_json(self, string: str) -> Any:
        """Fill a string of a JSON document. A placeholder alone in it gives its value as JSON."""
        template = _Placeholders(string)
        names = template.get_identifiers()
        alone = len(names) == 1 and string in {f"${names[0]}", f"${{{names[0]}}}"}
        return self.value(names[0]) if alone else template.substitute(self)

    def __missing__(self, name: str) -> str:
        value = self.value(name)
        return keys_text(value) if isinstance(value, dict) else _text(value)


def _cut(text: str) -> str:
    return text if len(text) <= _SUMMARY_CHARS else f"{text[: _SUMMARY_CHARS - 1]}…"


def _text(value: object) -> str:
    return value if isinstance(value, str) else value_text(value)


def _time(firing: Firing) -> str:
    return iso(round(firing.time_ms * 1000))


def _fill(document: Any, string: Callable[[str], Any]) -> Any:
    """Return a JSON document with each of its strings replaced."""
    match document:
        case str():
            return string(document)
        case list():
            return [_fill(one, string) for one in document]
        case dict():
            return {name: _fill(one, string) for name, one in document.items()}
    return document


def _checked(text: str, path: Path) -> Template:
    """Return the template of a text. Raises TemplateError unless all its placeholders have values."""
    template = _Placeholders(text)
    if not template.is_valid():
        raise TemplateError(f"{path}: a `$` that begins no placeholder is written `$$`")
    for name in template.get_identifiers():
        object_, dot, _ = name.partition(".")
        if object_ not in PLACEHOLDERS or (dot and object_ not in _OBJECTS):
            raise TemplateError(f"{path}: there is no `${name}`; there are ${', $'.join(PLACEHOLDERS)}")
    return template
