"""Reads the YAML or JSON of a rules file, within bounds, with the place of each part."""

import json
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import msgspec
import yaml
from yaml import MappingEndEvent, MappingStartEvent, ScalarEvent

from engine.language.diagnostics import Source, quoted

Path: TypeAlias = tuple[str | int, ...]
"""The names and numbers that lead to a part of a document."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_ESCAPE: Final = re.compile(
    r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\x..|\\u.{4}|\\U.{8}|\\\n[ \t]*|\\.", re.DOTALL
)
_BLANKS: Final = " \t\r\n\x85\u2028\u2029"
YAML_CHARS_MAX: Final = 8 * 1024 * 1024
"""The maximum size of YAML, which takes some seconds to read. JSON of this size takes one."""
NESTING_MAX: Final = 100
"""The maximum nesting of mappings and lists. Conditions are at most 64 deep."""
_QUOTE_ALL: Final = "; quote the whole condition, or put it into the lines below `name: |`"
_HINTS: Final = {
    "mapping values are not allowed": "; quote a name or condition with `: `",
    "expected '<document start>'": "; expected one mapping `name: condition`",
    "expected <block end>, but found '<scalar>'": _QUOTE_ALL,
    "found character '\\t'": "; indent with spaces",
    "found character": _QUOTE_ALL,
}
_TAG: Final = "tag:yaml.org,2002:"
_PLAIN_CHARS_MAX: Final = 20
_PLAIN_MAX: Final = 1_000
"""How many values of plain texts are cached."""
_PARSERS: Final[list[Any]] = [*([yaml.CSafeLoader] if yaml.__with_libyaml__ else []), yaml.SafeLoader]
"""libyaml is five times faster. PyYAML's own parser has better error messages and places."""


class Place(NamedTuple):
    """The place of a part: its beginning, at its name if it has one, and the span of its value."""

    start: int
    value_start: int
    value_end: int
    style: str
    """The style of a string: `"`, `'`, `|`, `>`; empty for any other value."""


def json_places(text: str) -> Iterator[tuple[Path, Place]]:
    """Yield the parts of a JSON document with their places; containers have no end."""
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
    """Return the offset of each character of a string in the document, and the end of the string.

    Folded text is matched by its non-blank characters.
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


class DocumentError(ValueError):
    """A text is no document; the message says why and where."""


class Document:
    """A document: its value, and the places of its parts."""

    def __init__(self, text: str, *, is_json: bool) -> None:
        """Read a text: as JSON if it is JSON, else as YAML. Raises DocumentError.

        With `is_json`, a text that begins with a brace must be JSON.
        """
        self.text = text
        self.source = Source(text)
        self._places: Callable[[], dict[Path, Place]] = lambda: dict(json_places(text))
        # YAML 1.1 would read `1e3` as text, so JSON must be read as JSON.
        if text.lstrip().startswith("{"):
            try:
                self.value: Any = msgspec.json.decode(text)
            except (ValueError, RecursionError) as error:
                if is_json:
                    raise DocumentError(self._json_reason(error)) from None
            else:
                self._refuse_repeated_names()
                return
        if len(text) > YAML_CHARS_MAX:
            raise DocumentError(f"YAML of more than {YAML_CHARS_MAX >> 20} MiB is not read; write it as JSON")
        self.value = _yaml_tree(text, None)
        self._places = self._yaml_places

    def place(self, path: Path) -> Place:
        """Return the place of a part, or of the nearest enclosing part."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path) or Place(0, 0, len(self.text), "")

    def said(self, path: Path, sentence: str) -> str:
        """Return a sentence about a part, prefixed with its line and column."""
        return f"{self.source.position(self.place(path).start)}: {sentence}"

    @cached_property
    def places(self) -> dict[Path, Place]:
        """The places of all parts, found by reading the text again."""
        return self._places()

    def _yaml_places(self) -> dict[Path, Place]:
        places: dict[Path, Place] = {}
        _yaml_tree(self.text, places)
        return places

    def _json_reason(self, error: Exception) -> str:
        if isinstance(error, RecursionError):
            return "it is nested too deeply"
        reason = str(error).removeprefix("JSON is malformed: ").lower()
        said, _, byte = reason.removesuffix(")").rpartition(" (byte ")
        if not byte.isdecimal():
            return f"not JSON: {reason}"
        offset = len(self.text.encode()[: int(byte)].decode(errors="ignore"))
        return f"{self.source.position(offset)}: not JSON: {said}"

    def _refuse_repeated_names(self) -> None:
        """Refuse an object with a repeated name, because the last one would win."""

        def check(pairs: list[tuple[str, object]]) -> None:
            if len({name for name, _ in pairs}) < len(pairs):
                raise KeyError

        try:
            json.loads(self.text, object_pairs_hook=check)
        except KeyError:
            seen: dict[Path, int] = {}
            for path, place in json_places(self.text):
                if path in seen:
                    first = self.source.position(seen[path]).line
                    sentence = f"{quoted(str(path[-1]))} is defined twice, first in line {first}"
                    raise DocumentError(f"{self.source.position(place.start)}: {sentence}") from None
                seen[path] = place.start


def _yaml_tree(text: str, places: dict[Path, Place] | None) -> Any:
    """Return the value of a YAML text, and note the places of its parts. Raises DocumentError."""
    for parser in _PARSERS:
        try:
            return _Tree(parser(text).get_event, places).document()
        except DocumentError:
            raise
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            if parser is _PARSERS[-1]:
                raise DocumentError(_reason(error, text)) from None
    raise AssertionError("the last parser gives a tree or an error")


def _refuse(problem: str, mark: Any) -> NoReturn:
    """Refuse well-formed but unsupported YAML."""
    raise DocumentError(f"line {mark.line + 1}, column {mark.column + 1}: {problem}")


class _Tree:
    """Builds a value from the events of YAML, in linear time.

    Refuses what would be lost silently. Dates, times and base-60 numbers are text, as in YAML 1.2.
    """

    def __init__(self, following: Callable[[], Any], places: dict[Path, Place] | None) -> None:
        self._next = following
        """Returns the next event."""
        self._places = places
        self._scalars: Any = yaml.SafeLoader("")
        self._resolvers: dict[str, Any] = self._scalars.yaml_implicit_resolvers
        """The other types that plain texts may have, by their first character."""
        self._plain: dict[str, Any] = {}
        """The cached values of short plain texts, mostly names of members."""

    def document(self) -> Any:
        """Return the value of the only document, None if there is none."""
        self._next()
        if isinstance(self._next(), yaml.StreamEndEvent):
            return None
        value = self._value(self._next(), (), None)
        self._next()
        after = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            _refuse("expected one document, found another", after.start_mark)
        return value

    def _value(self, event: Any, path: Path, key: Any) -> Any:
        """Build the value that an event begins. `key` is the event of its name."""
        if isinstance(event, yaml.AliasEvent):
            # A few aliases can expand to any amount of text.
            _refuse(f"`*{event.anchor}` is an alias; write out what it stands for", event.start_mark)
        if len(path) >= NESTING_MAX:
            _refuse(f"it is nested more than {NESTING_MAX} deep", event.start_mark)
        if self._places is not None:
            style = getattr(event, "style", None) or ""
            begin = event.start_mark.index
            place = Place((key or event).start_mark.index, begin, event.end_mark.index, style)
            self._places[path] = place
        match event:
            case ScalarEvent():
                return self._scalar(event)
            case MappingStartEvent(tag=None | "!" | "tag:yaml.org,2002:map"):
                return self._mapping(path)
            case yaml.SequenceStartEvent(tag=None | "!" | "tag:yaml.org,2002:seq"):
                elements: list[Any] = []
                while not isinstance(one := self._next(), yaml.SequenceEndEvent):
                    elements.append(self._value(one, (*path, len(elements)), None))
                return elements
            case _:
                _refuse(f"the tag '{event.tag}' is not taken", event.start_mark)

    def _mapping(self, path: Path) -> dict[str, Any]:
        members: dict[str, Any] = {}
        lines: dict[str, int] = {}
        key: Any
        following, scalar = self._next, self._scalar
        # Files have tens of thousands of members, so plain values take a fast path.
        is_short = self._places is None and len(path) + 1 < NESTING_MAX
        while type(key := following()) is not MappingEndEvent:
            mark: Any = key.start_mark
            if type(key) is not ScalarEvent:
                _refuse("a name must be text", mark)
            name = scalar(key)
            if name == "<<" and not key.style:
                _refuse("`<<` would merge mappings; quote it if it is a name", mark)
            if type(name) is not str:
                said = f"the name `{key.value}` is read as {json.dumps(name, allow_nan=False)}; quote it"
                _refuse(said, mark)
            if name in members:
                said = f"{quoted(name)} is defined twice, first in line {lines[name]}"
                _refuse(said, mark)
            lines[name] = mark.line + 1
            event = following()
            if is_short and type(event) is ScalarEvent:
                members[name] = scalar(event)
            elif is_short and type(event) is MappingStartEvent and event.tag is None:
                members[name] = self._mapping((*path, name))
            else:
                members[name] = self._value(event, (*path, name), key)
        return members

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        tag: str | None = event.tag
        if tag is None or tag == "!":
            if event.style or tag or text[:1] not in self._resolvers:
                return text
            if text not in self._plain:
                value = self._tagged(self._scalars.resolve(yaml.ScalarNode, text, event.implicit), event)
                if len(text) > _PLAIN_CHARS_MAX or len(self._plain) >= _PLAIN_MAX:
                    return value
                self._plain[text] = value
            return self._plain[text]
        return self._tagged(tag, event)

    def _tagged(self, tag: str, event: Any) -> Any:
        text: str = event.value
        kind = tag.removeprefix(_TAG)
        if kind in ("str", "timestamp", "merge", "value") or (kind in ("int", "float") and ":" in text):
            return text
        if kind not in ("null", "bool", "int", "float"):
            _refuse(f"the tag '{tag}' is not taken", event.start_mark)
        node = yaml.ScalarNode(tag, text, event.start_mark)
        value = self._scalars.construct_object(node)
        if isinstance(value, float) and value - value != 0:
            _refuse(f"JSON has no {text}; quote it", event.start_mark)
        return value


def _reason(error: Exception, text: str) -> str:
    match error:
        case yaml.MarkedYAMLError(problem=str(problem), problem_mark=yaml.Mark() as mark):
            hint = next((said for start, said in _HINTS.items() if problem.startswith(start)), "")
            return f"line {mark.line + 1}, column {mark.column + 1}: {problem}{hint}"
        case yaml.reader.ReaderError(position=int(place)):
            line = text.count("\n", 0, place) + 1
            character = f"U+{ord(text[place]):04X}"
            return f"line {line}: the character {character} is not allowed; write it as an escape"
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return str(error).lower()
