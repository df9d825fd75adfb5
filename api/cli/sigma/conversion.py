"""Converts Sigma rules: each into a condition, or the reason why it has none, and all into a rules file."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

from sigma.exceptions import SigmaError
from sigma.processing.resolver import ProcessingPipelineResolver
from sigma.rule import SigmaRule
from sigma.rule.detection import EmptySigmaDetections

from api.cli.messages import CommandError
from api.cli.rule_files.reading import files_in
from api.cli.rule_files.writing import rules_file_text
from api.cli.sigma.correlations import correlation_condition
from api.cli.sigma.detections import Mapping, all_of, conditions_for, detection_condition
from api.cli.sigma.sources import REFUSALS, Rule, Unread, one_line, path_of, read_rules, reason_of
from api.cli.sigma.values import LeftOut
from engine.evaluation.rules import DESCRIPTION_CHARS_MAX, LABEL_CHARS_MAX
from engine.language import condition as conditions
from engine.language.condition import All, Condition
from engine.language.diagnostics import Refusal
from engine.language.limits import DEFAULT_LIMITS
from engine.language.text.parser import parse
from engine.language.text.printer import format as canonical

NAME_CHARS_MAX: Final = 255
_ID_CHARS: Final = 8


class Converted(NamedTuple):
    """A Sigma rule and the equivalent condition."""

    rule: Rule
    condition: Condition
    text: str
    """The condition as text, one line for each part that must be true."""


class Conversion(NamedTuple):
    """The result of converting the rules of some files."""

    converted: list[Converted]
    left_out: list[Unread]
    inside_others: int
    """The number of rules that only occur in the conditions of correlations."""


class Converter:
    """Converts rules into conditions, according to the options of the command."""

    def __init__(
        self,
        pipelines: Iterable[str] = (),
        mappings: Iterable[Mapping] = (),
        keyword_fields: Iterable[str] = (),
    ) -> None:
        """Read the pipelines, in order of their priorities. Raises CommandError."""
        try:
            self._pipeline = ProcessingPipelineResolver().resolve(list(pipelines))
        except REFUSALS as error:
            raise CommandError(f"--pipeline: {reason_of(error)}") from None
        self._mappings: Sequence[Mapping] = list(mappings)
        self._keyword_fields: Sequence[str] = list(keyword_fields)
        self._failed: list[tuple[Rule, SigmaError]] = []

    def convert(self, paths: Iterable[str]) -> Conversion:
        """Convert the rules of files and folders. Raises OSError."""
        collection, left_out = read_rules(files_in(paths))
        self._apply_pipeline(collection.rules)
        written = cast("list[Rule]", list(collection.get_output_rules()))
        converted: list[Converted] = []
        for rule in written:
            try:
                condition = self._condition_of(rule)
                text = laid_out(condition)
                assert parse(text, DEFAULT_LIMITS) == condition, "the text means the condition"
                converted.append(Converted(rule, condition, text))
            except Refusal as refusal:
                reason = refusal.entries[0].message.splitlines()[0]
                left_out.append(Unread(path_of(rule), one_line(rule.title), reason))
            except (LeftOut, SigmaError) as error:
                left_out.append(Unread(path_of(rule), one_line(rule.title), reason_of(error)))
        return Conversion(converted, left_out, len(collection) - len(written))

    def _apply_pipeline(self, rules: Sequence[Rule]) -> None:
        """Apply the pipeline, which changes rules in place: to correlations last."""
        for rule in sorted(rules, key=lambda rule: not isinstance(rule, SigmaRule)):
            try:
                self._pipeline.apply(rule)
            except SigmaError as error:
                self._failed.append((rule, error))

    def _condition_of(self, rule: Rule) -> Condition:
        """Return the condition of one rule. Raises LeftOut and SigmaError."""
        for failed, error in self._failed:
            if failed is rule:
                raise error
        if not isinstance(rule, SigmaRule):
            return correlation_condition(rule, self._condition_of)
        if isinstance(rule.detection, EmptySigmaDetections):
            # The detection is read last, so its error is the last one.
            raise rule.errors[-1]
        condition = detection_condition(rule, self._keyword_fields)
        return all_of([*conditions_for(rule.logsource, self._mappings), condition])


def laid_out(condition: Condition) -> str:
    """Return the text of a condition, with each part that must be true on its own line."""
    members = condition.members if isinstance(condition, All) else (condition,)
    if len(members) == 1:
        return canonical(condition)
    return "\nand ".join(
        f"({canonical(member)})" if isinstance(member, conditions.Any) else canonical(member)
        for member in members
    )


def rules_file(converted: Sequence[Converted]) -> str:
    """Return the rules file of these rules, in their order."""
    named = zip(distinct_names([each.rule for each in converted]), converted, strict=True)
    return rules_file_text({name: _members(each) for name, each in named})


def distinct_names(rules: Sequence[Rule]) -> Iterator[str]:
    """Yield the name of each rule: its title, followed by its id if several rules have that title."""
    titles = [one_line(rule.title) or "untitled" for rule in rules]
    shared = Counter(titles)
    taken = set[str]()
    for title, rule in zip(titles, rules, strict=True):
        suffix = f" ({str(rule.id)[:_ID_CHARS]})" if shared[title] > 1 and rule.id else ""
        number = 1
        while (name := title[: NAME_CHARS_MAX - len(suffix)] + suffix) in taken:
            number += 1
            suffix = f" ({number})"
        taken.add(name)
        yield name


def _members(converted: Converted) -> dict[str, Any]:
    rule = converted.rule
    members: dict[str, Any] = {}
    if rule.description:
        members["description"] = one_line(rule.description)[:DESCRIPTION_CHARS_MAX]
    said = {
        "level": str(rule.level or "").lower(),
        "status": str(rule.status or "").lower(),
        "author": _joined(rule.author, ", "),
        "id": str(rule.id or ""),
        "tags": _joined(rule.tags, ", "),
        "references": _joined(rule.references, " "),
    }
    labels = {name: one_line(value)[:LABEL_CHARS_MAX] for name, value in said.items() if value}
    return {**members, **({"labels": labels} if labels else {}), "condition": converted.text}


def _joined(values: object, separator: str) -> str:
    """Return a list as text. pySigma keeps what is no list as it is."""
    return separator.join(map(str, values)) if isinstance(values, list) else str(values or "")
