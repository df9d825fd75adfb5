"""Reads rules files: rules by name, with their detector, relations and definitions."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from api.cli.messages import CommandError
from api.cli.rule_files.definitions import Definitions, PlacedText
from api.cli.rule_files.documents import Document, DocumentError
from api.cli.rule_files.documents import Path as Part
from api.cli.rule_files.members import MEMBERS, RuleMembers, draft_defects, listed_rules
from api.cli.rule_files.relations import RelationError, RelationFile, Tuple, tuples_in
from engine.evaluation.rules import check_name
from engine.evaluation.wire.bodies import without_collector
from engine.evaluation.wire.violations import shape_refusal
from engine.language.condition import Condition
from engine.language.diagnostics import ConditionError, Entry, Refusal, nearest, quoted
from engine.language.forms.table import FORMS
from engine.language.limits import DEFAULT_LIMITS
from engine.language.text.parser import parse

T = TypeVar("T")

FILE_BYTES_MAX: Final = 64 * 1024 * 1024

_CONTINUED: Final = re.compile(r"[ \t)\]}]|(and|or|since)\b")
"""Matches the beginning of a line that continues the condition of the previous line."""
_STEP: Final = re.compile(r"\[(\d+)\]|\.?([A-Za-z_]\w*)")
"""A step of a place such as `tests[0].fires`."""


_LOG_SOURCE: Final = frozenset({"category", "product", "service", "definition"})
"""The members of a Sigma rule's `logsource`."""
_PLACE: Final = re.compile(r"\bline \d+, column \d+")


class RuleFileError(CommandError):
    """A rules file is not valid; the message lists every defect."""


class WholeFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A rules file with more members than rules."""

    rules: dict[str, Any] | list[Any]
    """The rules by name, or a list as printed by `rules list -o json`."""
    detector: str | UnsetType = UNSET
    """The name or the id of the detector that `apply` changes."""
    relations: dict[str, Any] | UnsetType = UNSET
    """The relations by name."""
    define: dict[str, Any] | UnsetType = UNSET
    """Definitions: conditions that others include with `use "NAME"`."""


class NamedCondition(NamedTuple):
    """One rule of a file: name, text and parsed condition, and its other members in the file."""

    name: str
    text: str
    """The condition as sent to the service, with definitions inserted: text or JSON."""
    condition: Condition
    members: RuleMembers


@dataclass(frozen=True)
class RulesFile:
    """A rules file. Its conditions are parsed on demand, which takes longest."""

    path: str
    detector: str | None
    relations: dict[str, list[Tuple]]
    rules: dict[str, RuleMembers]
    """The rules by name; their texts have definitions inserted."""
    _texts: Mapping[str, PlacedText | Mapping[str, Any]]
    _parts: Mapping[str, Part]
    _document: Document

    def condition(self, name: str) -> Condition:
        """Return the condition of a rule. Raises Refusal, which names the places in the file."""
        try:
            return parse(self._texts[name], DEFAULT_LIMITS)
        except Refusal as refusal:
            raise Refusal(*(self._placed(name, entry) for entry in refusal.entries)) from None

    def conditions(self) -> list[NamedCondition]:
        """Return the rules with their conditions. Raises RuleFileError with the defects of all."""
        found: list[NamedCondition] = []
        if defects := list(self.defects(found)):
            raise RuleFileError("\n".join(defects))
        return found

    def defects(self, found: list[NamedCondition] | None = None) -> Iterator[str]:
        """Yield the defects of the conditions; add the valid rules to `found`."""
        for name in self._texts:
            members = self.rules[name]
            try:
                rule = NamedCondition(name, members.text, self.condition(name), members)
            except Refusal as refusal:
                yield from (f"{self.path}: {quoted(name)}: {code} {said}" for code, said in refusal.entries)
            else:
                if found is not None:
                    found.append(rule)

    def _placed(self, name: str, entry: Entry) -> Entry:
        """Return the defect of a rule, with the place of the rule if it has none itself."""
        if _PLACE.search(entry.message):
            return entry
        return Entry(entry.code, self._document.said(self._parts[name], entry.message))

    def place(self, name: str, *steps: str | int) -> str:
        """Return the file, and the line of a part of a rule."""
        part = self._document.place((*self._parts[name], *steps))
        return f"{self.path}, line {self._document.source.position(part.start).line}"


def read_rules_file(path: str) -> RulesFile:
    """Return the rules file at `path`; `-` is standard input. Raises RuleFileError."""
    return rules_file_of(read_text(path), path)


def rules_file_of(text: str, path: str) -> RulesFile:
    """Return the rules file in a text from `path`. Raises RuleFileError with all defects."""
    with without_collector(text):
        try:
            document = Document(text, is_json=path.endswith(".json"))
        except DocumentError as error:
            raise RuleFileError(f"{path}: {error}") from None
        return _Reader(document, path).read()


class _Reader:
    """Reads one document, and collects its defects."""

    def __init__(self, document: Document, path: str) -> None:
        self._document = document
        self._path = path
        self._defects: list[str] = []

    def read(self) -> RulesFile:
        value = self._document.value
        if not isinstance(value, dict) or not value:
            raise RuleFileError(f"{self._path}: expected a mapping `name: condition`")
        source = value.get("logsource")
        if "detection" in value and isinstance(source, dict) and source.keys() <= _LOG_SOURCE:
            raise RuleFileError(f"{self._path}: this is a Sigma rule; `rule-detector sigma` converts it")
        file = WholeFile(value)
        part: Part = ()
        if "rules" in value and value["rules"] is None:
            raise RuleFileError(f"{self._path}: {self._document.said(('rules',), '`rules` is empty')}")
        if isinstance(value.get("rules"), dict | list):
            part = ("rules",)
            file = self._converted((), value, WholeFile) or WholeFile({})
        relations = self._relations(file.relations or {})
        given, parts = self._given(file.rules, part)
        definitions = Definitions(self._document, file.define or {})
        rules: dict[str, RuleMembers] = {}
        texts: dict[str, PlacedText | Mapping[str, Any]] = {}
        for name, one in given.items():
            members = self._members(name, one, parts[name])
            if members is None:
                continue
            rules[name] = members
            if not isinstance(members.condition, str):
                texts[name] = members.condition
                continue
            at = (*parts[name], "condition") if isinstance(one, dict) else parts[name]
            try:
                expanded = definitions.expanded(at, members.condition)
            except ConditionError as error:
                self._defects += [f"{quoted(name)}: {entry.code} {entry.message}" for entry in error.entries]
                continue
            if expanded is not None:
                texts[name] = PlacedText(definitions, at, members.condition, expanded)
                if expanded is not members.condition:
                    rules[name] = msgspec.structs.replace(members, condition=expanded)
        definitions.check()
        self._defects += definitions.defects
        for name, said in draft_defects(rules):
            self._add(parts[name], f"{quoted(name)}: {said}")
        found = RulesFile(self._path, file.detector or None, relations, rules, texts, parts, self._document)
        if self._defects:
            told = [f"{self._path}: {defect}" for defect in self._defects]
            raise RuleFileError("\n".join([*told, *found.defects()]))
        return found

    def _given(self, rules: dict[str, Any] | list[Any], part: Part) -> tuple[dict[str, Any], dict[str, Part]]:
        """Return the raw rules of the file, and their parts of the document."""
        if isinstance(rules, dict):
            return rules, {name: (*part, name) for name in rules}
        try:
            listed = listed_rules(rules)
        except ValueError as error:
            self._add(part, str(error))
            return {}, {}
        return dict(listed), {name: (*part, number) for number, (name, _) in enumerate(listed)}

    def _members(self, name: str, given: object, part: Part) -> RuleMembers | None:
        """Read a rule: a condition as text or as an object, or an object with members."""
        try:
            check_name(name)
        except Refusal as refusal:
            self._add(part, f"{quoted(name)}: {refusal}")
        match given:
            case str():
                return RuleMembers(given)
            case dict() if not given.keys() & MEMBERS:
                if part == (name,) and not given.keys() & FORMS.keys() and nearest(name, ["rules"]):
                    self._add(part, f"{quoted(name)}: did you mean `rules`?")
                    return None
                return RuleMembers(given)
            case dict():
                members = self._converted(part, given, RuleMembers, name)
                if members and members.draft_of:
                    if members.shadow is False:
                        self._add(part, f"{quoted(name)}: shadow: a draft is a shadow rule; leave it out")
                    return msgspec.structs.replace(members, shadow=True)
                return members
            case _:
                self._add(part, f"{quoted(name)}: expected a condition as text or as an object")
                return None

    def _relations(self, given: Mapping[str, Any]) -> dict[str, list[Tuple]]:
        found: dict[str, list[Tuple]] = {}
        for name, one in given.items():
            part = ("relations", name)
            is_here = isinstance(one, list)
            relation = one if is_here else self._converted(part, one, RelationFile, name, "relation ")
            try:
                found[name] = [] if relation is None else tuples_in(relation, Path(self._path).parent)
            except RelationError as error:
                self._add(part, f"relation {quoted(name)}: {error}")
        return found

    def _converted(
        self, part: Part, given: Any, type_: type[T], name: str | None = None, kind: str = ""
    ) -> T | None:
        """Convert a value to a type; report a defect and return None if that is impossible."""
        try:
            return msgspec.convert(given, type_)
        except msgspec.ValidationError as error:
            about = "" if name is None else f"{kind}{quoted(name)}: "
            for entry in shape_refusal(given, type_, str(error)).entries:
                said = entry.message.removeprefix("body: ")
                steps = [int(number) if number else name for number, name in _steps(said)]
                self._add((*part, *steps), about + said)
            return None

    def _add(self, part: Part, said: str) -> None:
        self._defects.append(self._document.said(part, said))


def _steps(said: str) -> Iterator[tuple[str, str]]:
    """Yield the steps of the place at the beginning of a message, each a number or a name."""
    at = 0
    while step := _STEP.match(said, at):
        yield step[1], step[2]
        at = step.end()


def conditions_of(text: str, path: str) -> list[NamedCondition]:
    """Return the rules in a text from `path`, with their conditions. Raises RuleFileError."""
    return rules_file_of(text, path).conditions()


def named_condition(name: str, text: str) -> NamedCondition:
    """Return one rule. Raises RuleFileError."""
    try:
        check_name(name)
        return NamedCondition(name, text, parse(text, DEFAULT_LIMITS), RuleMembers(text))
    except Refusal as refusal:
        said = [f"{quoted(name)}: {code} {message}" for code, message in refusal.entries]
        raise RuleFileError("\n".join(said)) from None


def read_rules(path: str) -> list[NamedCondition]:
    """Return the rules of the file at `path`, with their conditions. Raises RuleFileError."""
    return read_rules_file(path).conditions()


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
        is_condition = isinstance(error, FileNotFoundError) and any(mark in path for mark in " =<>")
        hint = "; a condition stands in a rules file, as `name: condition`" if is_condition else ""
        raise RuleFileError(f"{shown}: {(error.strerror or str(error)).lower()}{hint}") from None


def files_in(paths: Iterable[str]) -> list[Path]:
    """Return the given files, and the YAML files of the given folders, each once."""
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        if path.is_dir():
            found |= dict.fromkeys(
                sorted(each for each in path.rglob("*") if each.suffix in (".yml", ".yaml"))
            )
        else:
            found[path] = None
    return list(found)


def holds_rules(text: str, path: str) -> bool:
    """Return whether a text is a rules file, not conditions one a line."""
    only = _only_member(text)
    is_export = only is not None and only[0] == "rules" and isinstance(only[1], list)
    is_condition = only is not None and only[0] in FORMS
    return is_export or (is_rule_file(path) and not is_condition)


def line_conditions(text: str) -> dict[str, str]:
    """Return the conditions of a text with one a line, by the lines in which they begin."""
    conditions: dict[str, str] = {}
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        blank = not line.strip() or line.lstrip().startswith("#")
        if not start and blank:
            continue
        if start and (blank or _CONTINUED.match(line)):
            # Blank lines and comments are kept, so that line numbers within the condition are right.
            conditions[f"line {start}"] += "\n" + line
        else:
            start = number
            conditions[f"line {start}"] = line
    return conditions


def is_rule_file(path: str) -> bool:
    """Whether the name of a path is that of a rules file."""
    return path.lower().endswith((".yaml", ".yml", ".json"))


def _only_member(text: str) -> tuple[str, object] | None:
    """Return the name and value of the only member of a JSON object; None for any other text."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        document = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return next(iter(document.items())) if isinstance(document, dict) and len(document) == 1 else None
