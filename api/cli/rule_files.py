"""Reads rules (`name: condition`, in YAML or JSON) and conditions (text, one a line) from files."""

import re
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from api.cli.failures import CommandError
from api.cli.rule_documents import document_of
from api.cli.rule_members import RuleMembers, draft_defects, listed_rules, members_of
from engine.evaluation.rules import check_name
from engine.language.condition import Condition
from engine.language.diagnostics import Refusal
from engine.language.forms.table import FORMS
from engine.language.limits import DEFAULT_LIMITS
from engine.language.text.parser import parse

_CONTINUED: Final = re.compile(r"[ \t)\]}]|(and|or|since)\b")
"""Matches the beginning of a line that continues the condition of the line before."""

FILE_BYTES_MAX: Final = 64 * 1024 * 1024


class RuleFileError(CommandError):
    """A rule file is not valid; the message lists every defect, one a line."""


class NamedCondition(NamedTuple):
    """One rule of a file: name, text and parsed condition, and its other members in the file."""

    name: str
    text: str
    """The condition as sent to the service: text or JSON."""
    condition: Condition
    members: RuleMembers


def entries_of(text: str, source: str) -> dict[str, str]:
    """Return name and condition text of each entry, without parsing the conditions. Raises RuleFileError."""
    return {name: rule.condition for name, rule in _rules_of(text, source).items()}


def _rules_of(text: str, source: str) -> dict[str, RuleMembers]:
    document = _document(text, source)
    if not isinstance(document, dict) or not document:
        raise RuleFileError(f"{source}: expected a mapping `name: condition`")
    found: dict[str, RuleMembers] = {}
    defects: list[str] = []
    for name, given in _entries(document, source):
        if not isinstance(name, str):
            defects.append(f"{source}: `{name}`: a rule's name must be text; quote it")
            continue
        try:
            check_name(name)
            found[name] = members_of(given)
        except (ValueError, Refusal) as error:
            defects.append(f"{source}: `{name}`: {error}")
    defects += [f"{source}: `{name}`: {said}" for name, said in draft_defects(found)]
    if defects:
        raise RuleFileError("\n".join(defects))
    return found


def _entries(document: dict[object, object], source: str) -> Iterable[tuple[object, object]]:
    """Return the names and the rules of a document. Raises RuleFileError."""
    match document:
        case {"rules": list() as listed} if len(document) == 1:
            try:
                return listed_rules(listed)
            except ValueError as error:
                raise RuleFileError(f"{source}: {error}") from None
        case _:
            return document.items()


def _document(text: str, source: str) -> object:
    try:
        return document_of(text, is_json=source.endswith(".json"))
    except ValueError as error:
        raise RuleFileError(f"{source}: {error}") from None


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
    """Return the text of the file at `path`, which may be a pipe; `-` is standard input.

    Raises RuleFileError.
    """
    shown = "standard input" if path == "-" else path
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            raise RuleFileError(f"{shown}: it has more than {FILE_BYTES_MAX >> 20} MiB")
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RuleFileError(f"{shown}: byte {error.start} is not valid UTF-8") from None
    except OSError as error:
        raise RuleFileError(f"{shown}: {(error.strerror or str(error)).lower()}") from None


def named_conditions(text: str, file: str) -> dict[str, str]:
    """Return the conditions of a file by rule name or line. Raises RuleFileError."""
    if _is_export(text) or (is_rule_file(file) and not _is_condition(text)):
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


def is_rule_file(path: str) -> bool:
    """Whether a path is named like a file of rules."""
    return path.lower().endswith((".yaml", ".yml", ".json"))


def _is_condition(text: str) -> bool:
    """Return whether a text is one condition as JSON, not rules: its only member is a condition's."""
    only = _only_member(text)
    return only is not None and only[0] in FORMS


def _is_export(text: str) -> bool:
    """Return whether a text is the JSON of `rules list`."""
    match _only_member(text):
        case ("rules", list()):
            return True
        case _:
            return False


def _only_member(text: str) -> tuple[str, object] | None:
    """Return the name and value of the only member of a JSON object; None for any other text."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        document = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return next(iter(document.items())) if isinstance(document, dict) and len(document) == 1 else None
