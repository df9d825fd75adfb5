"""Files of rules: a mapping from names to conditions, in YAML or JSON."""

import json
from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
import yaml

from engine.language.condition import Condition
from engine.language.diagnostics import Refusal
from engine.language.limits import DEFAULT_LIMITS
from engine.language.text.parser import parse


class RuleFileError(Exception):
    """A rule file that cannot be used; the message has every defect, one after the other."""


class NamedCondition(NamedTuple):
    """One entry of a rule file: what it says, and what that means."""

    name: str
    text: str
    """As the service takes it: the text language, or JSON."""
    condition: Condition


class _Loader(yaml.SafeLoader):
    """YAML, except that a name given twice is refused: the last would silently replace the others."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"`{key.value}` stands there twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def entries_of(text: str, source: str) -> dict[str, str]:
    """Give name and condition text of each entry, conditions not yet judged. Raises RuleFileError."""
    document = _document(text, source)
    if not isinstance(document, dict) or not document:
        raise RuleFileError(f"{source}: expected a mapping `name: condition`")
    found: dict[str, str] = {}
    defects: list[str] = []
    for name, condition in document.items():
        match name, condition:
            case str(), str():
                found[name] = condition
            case str(), dict():
                # The standard encoder, since msgspec writes no integers past 64 bits.
                found[name] = json.dumps(condition, ensure_ascii=False)
            case str(), _:
                defects.append(f"{source}: `{name}`: expected a condition as text or as an object")
            case _:
                defects.append(f"{source}: `{name}`: a rule's name is text; put it between quotes")
    if defects:
        raise RuleFileError("\n".join(defects))
    return found


def _document(text: str, source: str) -> object:
    # YAML 1.1 takes `1e3` for text, so what is JSON is read as JSON.
    if text.lstrip().startswith("{"):
        try:
            return cast("object", msgspec.json.decode(text))
        except (ValueError, RecursionError) as error:
            if source.endswith(".json"):
                raise RuleFileError(f"{source}: not JSON: {str(error).lower()}") from None
    try:
        return cast("object", yaml.load(text, Loader=_Loader))  # noqa: S506 -- a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise RuleFileError(f"{source}: {_yaml_reason(error)}") from None


def conditions_of(text: str, source: str) -> list[NamedCondition]:
    """Give the rules of a file, every condition judged. Raises RuleFileError with the defects of all."""
    found: list[NamedCondition] = []
    defects: list[str] = []
    for name, condition in entries_of(text, source).items():
        try:
            found.append(NamedCondition(name, condition, parse(condition, DEFAULT_LIMITS)))
        except Refusal as refusal:
            defects += [f"{source}: `{name}`: {entry.code} {entry.message}" for entry in refusal.entries]
    if defects:
        raise RuleFileError("\n".join(defects))
    return found


def read_rules(path: str) -> list[NamedCondition]:
    """Give the rules of the file at `path`. Raises RuleFileError, also where it cannot be read."""
    try:
        text = Path(path).read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise RuleFileError(f"{path}: it is not valid UTF-8") from None
    except OSError as error:
        raise RuleFileError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    return conditions_of(text, path)


def _yaml_reason(error: Exception) -> str:
    match error:
        case yaml.MarkedYAMLError(problem=str(problem), problem_mark=yaml.Mark() as mark):
            return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return str(error).lower()
