"""Reads Sigma rules and filters from files with pySigma."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from sigma.collection import SigmaCollection
from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import SigmaError, SigmaRuleLocation
from sigma.filters import EmptySigmaGlobalFilter
from sigma.policy import SigmaPolicy
from sigma.policy.regex_engine import PythonRegexEngine, RegexPattern
from sigma.rule import SigmaRule
from sigma.rule.logsource import EmptyLogSource

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
    """A file, or a rule, filter or correlation in it, that pySigma refuses."""

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
        for part in _parts(file, unread):
            title = one_line(part[0].get("title")) if len(part) == 1 else ""
            try:
                collection = _collection(part, file)
            except REFUSALS as error:
                unread.append(Unread(file, title, reason_of(error)))
            else:
                collections.append(collection)
                unread += _unread_in(collection, file)
    # Filters apply to the rules of all files.
    merged = SigmaCollection.merge(collections, resolve_references=False)
    refused: list[Rule] = []
    for rule in merged.rules:
        if isinstance(rule, SigmaCorrelationRule):
            try:
                rule.resolve_rule_references(merged)
            except SigmaError as error:
                refused.append(rule)
                unread.append(Unread(path_of(rule), one_line(rule.title), reason_of(error)))
    merged.rules = [rule for rule in merged.rules if not any(rule is each for each in refused)]
    return merged, unread


def _parts(file: Path, unread: list[Unread]) -> list[list[dict[str, Any]]]:
    """Return the documents of a file that pySigma must read together. An `action` concerns the others."""
    try:
        documents = list(_documents(file))
    except REFUSALS as error:
        unread.append(Unread(file, "", reason_of(error)))
        return []
    together = any("action" in document for document in documents)
    return [documents] if together else [[document] for document in documents]


def _collection(documents: list[dict[str, Any]], file: Path) -> SigmaCollection:
    return SigmaCollection.from_dicts(
        documents,
        collect_errors=True,
        source=SigmaRuleLocation(file),
        collect_filters=True,
        resolve_references=False,
        policy=SigmaPolicy(_RegexEngine()),
    )


def _unread_in(collection: SigmaCollection, file: Path) -> Iterator[Unread]:
    """Remove the filters that would do nothing. Yield these, and the errors that concern no rule."""
    of_rules = [error for rule in (*collection.rules, *collection.filters) for error in rule.errors]
    for error in collection.errors:
        if not any(error is each for each in of_rules):
            yield Unread(file, "", reason_of(error))
    for each in list(collection.filters):
        if isinstance(each.filter, EmptySigmaGlobalFilter) or isinstance(each.logsource, EmptyLogSource):
            collection.filters.remove(each)
            yield Unread(file, one_line(each.title), reason_of(each.errors[-1]))


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


def one_line(text: object) -> str:
    """Return a text with a space for each run of white space and characters that cannot be printed.

    What is no text, such as a missing title, is empty.
    """
    if not isinstance(text, str):
        return ""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
