"""Decodes the YAML or JSON of a rule file, within bounds: no small file takes minutes or gigabytes."""

import json
import re
from collections.abc import Hashable, Iterator
from typing import Any, Final, cast

import msgspec
import yaml

YAML_CHARS_MAX: Final = 8 * 1024 * 1024
"""The longest YAML, which takes half a minute to read. JSON of this size takes a second."""

NESTING_MAX: Final = 100
"""How deep mappings and lists may be nested. Conditions are at most 64 deep."""

NUMBER_CHARS_MAX: Final = 400
"""The longest number or date in YAML: `1:1:1:…` is one, in base 60."""

_YAML_HINTS: Final = {
    "mapping values are not allowed": "; quote a name or condition with `: `",
    "expected '<document start>'": "; expected one mapping `name: condition`",
}
_TEXT: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]')


def document_of(text: str, *, is_json: bool) -> object:
    """Return what a text says: JSON if it is JSON, else YAML. Raises ValueError, which says why not.

    With `is_json`, a text that begins with a brace must be JSON.
    """
    # YAML 1.1 reads `1e3` as text, so JSON is read as JSON.
    if text.lstrip().startswith("{"):
        try:
            document = cast("object", msgspec.json.decode(text))
        except (ValueError, RecursionError) as error:
            if is_json:
                reason = str(error).removeprefix("JSON is malformed: ").lower()
                raise ValueError(f"not JSON: {reason}") from None
        else:
            for name, line, first in _repeated(text):
                raise ValueError(f"line {line}: `{name}` is defined twice, first in line {first}")
            return document
    if len(text) > YAML_CHARS_MAX:
        raise ValueError(f"YAML of more than {YAML_CHARS_MAX >> 20} MiB is not read; write it as JSON")
    try:
        return cast("object", yaml.load(text, Loader=_Loader))  # noqa: S506 -- a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(_yaml_reason(error, text)) from None


def _repeated(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the names that an object of this JSON has twice, with the lines of the second and the first."""
    objects: list[dict[str, int] | None] = []
    line, counted_to, expects_name = 1, 0, False
    for token in _JSON_TOKEN.finditer(text):
        match token[0]:
            case "{":
                objects.append({})
                expects_name = True
            case "[":
                objects.append(None)
                expects_name = False
            case "}" | "]":
                objects.pop()
                expects_name = False
            case ",":
                expects_name = objects[-1] is not None
            case name if expects_name:
                lines = objects[-1]
                assert lines is not None, "only objects have names"
                line += text.count("\n", counted_to, token.start())
                counted_to, expects_name = token.start(), False
                decoded = json.loads(name)
                if decoded in lines:
                    yield decoded, line, lines[decoded]
                lines[decoded] = line


class _Loader(yaml.SafeLoader):
    """A YAML loader whose work grows with the text only. It refuses what would be lost silently, too."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Read a value; an alias is refused, because a few of them can stand for any amount of text."""
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _refusal(f"`*{event.anchor}` is an alias; write out what it stands for", event.start_mark)
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise _refusal(f"it is nested more than {NESTING_MAX} deep", event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        """Return a mapping; a key that it has twice is refused, because the last one would win."""
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.tag == _MERGE:
                raise _refusal("`<<` would merge mappings; quote it if it is a name", key.start_mark)
            if key.value in lines:
                first = lines[key.value]
                raise _refusal(f"`{key.value}` is defined twice, first in line {first}", key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Return the text of a value."""
        if node.tag != _TEXT and len(node.value) > NUMBER_CHARS_MAX:
            said = f"a value of more than {NUMBER_CHARS_MAX} characters must be quoted"
            raise _refusal(said, node.start_mark)
        return super().construct_scalar(node)


def _refusal(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, mark)


def _yaml_reason(error: Exception, text: str) -> str:
    match error:
        case yaml.MarkedYAMLError(problem=str(problem), problem_mark=yaml.Mark() as mark):
            hint = next((said for start, said in _YAML_HINTS.items() if problem.startswith(start)), "")
            return f"line {mark.line + 1}, column {mark.column + 1}: {problem}{hint}"
        case yaml.reader.ReaderError(position=int(place)):
            line = text.count("\n", 0, place) + 1
            character = f"U+{ord(text[place]):04X}"
            return f"line {line}: the character {character} is not allowed; write it as an escape"
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return str(error).lower()
