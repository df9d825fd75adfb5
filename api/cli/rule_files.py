"""Reads rules (`name: condition`, in YAML or JSON) and conditions (text, one a line) from files."""

import re
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Final, NamedTuple, cast

import msgspec
import yaml

from api.cli.failures import CommandError
from api.cli.rule_members import RuleMembers, draft_defects, members_of
from engine.language.condition import Condition
from engine.language.diagnostics import Refusal
from engine.language.limits import DEFAULT_LIMITS
from engine.language.operators import FORMS
from engine.language.text.parser import parse

_CONTINUED: Final = re.compile(r"[ \t)\]}]|(and|or|since)\b")
"""Matches the beginning of a line that continues the condition of the line before."""

_YAML_HINTS: Final = {
    "mapping values are not allowed": "; quote a name or condition with `: `",
    "expected '<document start>'": "; expected one mapping `name: condition`",
}


class RuleFileError(CommandError):
    """A rule file is not valid; the message lists every defect, one a line."""


class NamedCondition(NamedTuple):
    """One rule of a file: name, text and parsed condition, and its other members in the file."""

    name: str
    text: str
    """The condition as sent to the service: text or JSON."""
    condition: Condition
    members: RuleMembers


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys, of which the last one would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"`{key.value}` is defined twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def entries_of(text: str, source: str) -> dict[str, str]:
    """Return name and condition text of each entry, without parsing the conditions. Raises RuleFileError."""
    return {name: rule.condition for name, rule in _rules_of(text, source).items()}


def _rules_of(text: str, source: str) -> dict[str, RuleMembers]:
    document = _document(text, source)
    if not isinstance(document, dict) or not document:
        raise RuleFileError(f"{source}: expected a mapping `name: condition`")
    found: dict[str, RuleMembers] = {}
    defects: list[str] = []
    for name, given in document.items():
        if not isinstance(name, str):
            defects.append(f"{source}: `{name}`: a rule's name must be text; quote it")
            continue
        try:
            found[name] = members_of(given)
        except ValueError as error:
            defects.append(f"{source}: `{name}`: {error}")
    defects += [f"{source}: `{name}`: {said}" for name, said in draft_defects(found)]
    if defects:
        raise RuleFileError("\n".join(defects))
    return found


def _document(text: str, source: str) -> object:
    # YAML 1.1 reads `1e3` as text, so JSON is read as JSON.
    if text.lstrip().startswith("{"):
        try:
            return cast("object", msgspec.json.decode(text))
        except (ValueError, RecursionError) as error:
            if source.endswith(".json"):
                reason = str(error).removeprefix("JSON is malformed: ").lower()
                raise RuleFileError(f"{source}: not JSON: {reason}") from None
    try:
        return cast("object", yaml.load(text, Loader=_Loader))  # noqa: S506 -- a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise RuleFileError(f"{source}: {_yaml_reason(error)}") from None


def conditions_of(text: str, source: str) -> list[NamedCondition]:
    """Return the rules of a file, every condition parsed. Raises RuleFileError with all defects."""
    found: list[NamedCondition] = []
    defects: list[str] = []
    for name, members in _rules_of(text, source).items():
        condition = members.condition
        try:
            found.append(NamedCondition(name, condition, parse(condition, DEFAULT_LIMITS), members))
        except Refusal as refusal:
            defects += [f"{source}: `{name}`: {entry.code} {entry.message}" for entry in refusal.entries]
    if defects:
        raise RuleFileError("\n".join(defects))
    return found


def read_rules(path: str) -> list[NamedCondition]:
    """Return the rules of the file at `path`, every condition parsed. Raises RuleFileError."""
    return conditions_of(read_text(path), path)


def read_text(path: str) -> str:
    """Return the text of the file at `path`; `-` is standard input. Raises RuleFileError."""
    shown = "standard input" if path == "-" else path
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RuleFileError(f"{shown}: byte {error.start} is not valid UTF-8") from None
    except OSError as error:
        raise RuleFileError(f"{shown}: {(error.strerror or str(error)).lower()}") from None


def named_conditions(text: str, file: str) -> dict[str, str]:
    """Return the conditions of a file by rule name or line. Raises RuleFileError."""
    if file.lower().endswith((".yaml", ".yml", ".json")) and not _is_condition(text):
        return entries_of(text, file)
    conditions: dict[str, str] = {}
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        blank = not line.strip() or line.lstrip().startswith("#")
        if not start and blank:
            continue
        if start and (blank or _CONTINUED.match(line)):
            # Keeps blank lines and comments, so that line numbers within the condition stay right.
            conditions[f"line {start}"] += "\n" + line
        else:
            start = number
            conditions[f"line {start}"] = line
    return conditions


def _is_condition(text: str) -> bool:
    """Return whether a text is one condition as JSON, not rules: its only member is a condition's."""
    try:
        document = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and len(document) == 1 and next(iter(document)) in FORMS


def _yaml_reason(error: Exception) -> str:
    match error:
        case yaml.MarkedYAMLError(problem=str(problem), problem_mark=yaml.Mark() as mark):
            hint = next((said for start, said in _YAML_HINTS.items() if problem.startswith(start)), "")
            return f"line {mark.line + 1}, column {mark.column + 1}: {problem}{hint}"
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return str(error).lower()
