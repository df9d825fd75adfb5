"""Reads Sigma rules and filters from files with pySigma."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from sigma.collection import SigmaCollection
from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import SigmaError, SigmaRuleLocation
from sigma.policy import SigmaPolicy
from sigma.policy.regex_engine import PythonRegexEngine, RegexPattern
from sigma.rule import SigmaRule

Rule = SigmaRule | SigmaCorrelationRule

REFUSALS = (SigmaError, yaml.YAMLError, AttributeError, TypeError, ValueError, KeyError)
"""The exceptions that pySigma raises for unreadable files, including those for members of wrong types."""

_NAMES = re.compile(r"(?:\w|-|\.\*)*")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _RegexEngine(PythonRegexEngine):
    """Leaves checking regular expressions to the engine. pySigma searches only names of detections."""

    def compile(self, pattern: str, flags: int = 0) -> RegexPattern:
        """Compile the pattern of `1 of selection_*`."""
        return super().compile(pattern if _NAMES.fullmatch(pattern) else "", flags)


class Unread(NamedTuple):
    """A file, or a correlation in it, that pySigma refuses."""

    path: Path
    title: str
    reason: str


def read_rules(files: Iterable[Path]) -> tuple[SigmaCollection, list[Unread]]:
    """Return the rules of files, with filters applied and references resolved, and the refused parts.

    Rules come in the order of the files. Raises OSError.
    """
    collections: list[SigmaCollection] = []
    unread: list[Unread] = []
    for file in files:
        try:
            documents = list(_documents(file))
            location = SigmaRuleLocation(file)
            collections.append(
                SigmaCollection.from_dicts(
                    documents,
                    collect_errors=True,
                    source=location,
                    collect_filters=True,
                    resolve_references=False,
                    policy=SigmaPolicy(_RegexEngine()),
                )
            )
        except REFUSALS as error:
            unread.append(Unread(file, "", reason_of(error)))
    # Filters apply to the rules of all files.
    merged = SigmaCollection.merge(collections, resolve_references=False)
    refused: list[Rule] = []
    for rule in merged.rules:
        if isinstance(rule, SigmaCorrelationRule):
            try:
                rule.resolve_rule_references(merged)
            except SigmaError as error:
                refused.append(rule)
                unread.append(Unread(path_of(rule), rule.title, reason_of(error)))
    merged.rules = [rule for rule in merged.rules if not any(rule is each for each in refused)]
    return merged, unread


def _documents(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as text:
        for document in yaml.load_all(text, Loader=_LOADER):
            if document is not None and not isinstance(document, dict):
                raise ValueError("expected a Sigma rule, which is a mapping")
            if document is not None:
                yield document


def path_of(rule: Rule) -> Path:
    """Return the file that a rule comes from."""
    assert rule.source is not None, "each rule is read from a file"
    return rule.source.path


def reason_of(error: Exception) -> str:
    """Return the message of an error on one line, without the place, which is shown separately."""
    said = error.args[0] if isinstance(error, SigmaError) and error.args else error
    return " ".join(str(said).split()) or type(error).__name__
