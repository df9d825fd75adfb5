"""Where the parts of a YAML or JSON text stand, and where each character of a string in it does."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""The names and numbers that lead to a part of a document."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_ESCAPE: Final = re.compile(
    r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\x..|\\u.{4}|\\U.{8}|\\\n[ \t]*|\\.", re.DOTALL
)
_BLANKS: Final = " \t\r\n\x85\u2028\u2029"


class Place(NamedTuple):
    """Where a part begins: at its name, if it has one; and from where to where its value stands."""

    start: int
    value_start: int
    value_end: int
    style: str
    """How a string is written: `"`, `'`, `|`, `>`; empty for any other value."""


def json_places(text: str) -> Iterator[tuple[Path, Place]]:
    """Yield the parts of a JSON document with their places; of containers, the end is not told."""
    path: list[Any] = []
    starts: list[int | None] = []
    awaits_name = False
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "}" | "]":
                path.pop()
                starts.pop()
                awaits_name = False
            case ",":
                awaits_name = not isinstance(path[-1], int)
                if not awaits_name:
                    path[-1] += 1
            case ":":
                pass
            case name if awaits_name:
                path[-1], starts[-1], awaits_name = json.loads(name), token.start(), False
            case value:
                start = starts[-1] if starts else None
                begin = token.start() if start is None else start
                style = '"' if value.startswith('"') else ""
                yield tuple(path), Place(begin, token.start(), token.end(), style)
                if value in "{[":
                    awaits_name = value == "{"
                    path.append(None if awaits_name else 0)
                    starts.append(None)


def offsets_of(text: str, place: Place, value: str) -> list[int]:
    """Return where each character of a string stands in the text around it, and where the string ends.

    What is folded is matched by the characters that are not blank.
    """
    at = place.value_start
    if place.style in ("|", ">") and place.style:
        at = text.find("\n", at) + 1
    elif place.style:
        at += 1
    offsets: list[int] = []
    for char in value:
        escape = _ESCAPE.match(text, at) if place.style == '"' else None
        if char in _BLANKS and not escape:
            offsets.append(at)
            at += text[at : at + 1] in _BLANKS and at < place.value_end
            continue
        while not escape and at < place.value_end and text[at] in _BLANKS:
            at += 1
            escape = _ESCAPE.match(text, at) if place.style == '"' else None
        while escape and escape[0].startswith("\\\n"):
            at = escape.end()
            escape = _ESCAPE.match(text, at)
        offsets.append(at)
        at = escape.end() if escape else at + (2 if place.style == "'" and char == "'" else 1)
    return [*offsets, at]
