"""The public rules of SigmaHQ as regular expressions, one for each value, as users write them."""

import os
import re
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

_ARCHIVE = "sigmahq-rules.tar.gz"
_MEANINGFUL = {"*", "?", "\\"}


class SigmaRule(NamedTuple):
    """One rule: each regular expression with its field, which is empty for any field."""

    name: str
    patterns: tuple[tuple[str, str], ...]


def sigma_rules() -> tuple[SigmaRule, ...]:
    """Return the rules; skip the test if they are not there."""
    folder = Path(os.environ.get("RULE_DETECTOR_TEST_DATA", "/nonexistent"))
    if not (folder / _ARCHIVE).is_file():
        pytest.skip("RULE_DETECTOR_TEST_DATA names no folder with the recordings")
    return _rules(folder / _ARCHIVE)


@cache
def _rules(archive: Path) -> tuple[SigmaRule, ...]:
    return tuple(
        SigmaRule(name, tuple(_patterns(document["detection"])))
        for name, text in _files(archive)
        for document in yaml.load_all(text, Loader=yaml.CSafeLoader)
        if isinstance(document, dict) and "detection" in document
    )


def _files(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as files:
        for member in files:
            if member.isfile() and member.name.endswith((".yml", ".yaml")):
                content = files.extractfile(member)
                assert content is not None
                yield member.name, content.read()


def _patterns(detection: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, selection in detection.items():
        if name not in {"condition", "timeframe"}:
            yield from _of_selection(selection)


def _of_selection(selection: object) -> Iterator[tuple[str, str]]:
    match selection:
        case dict():
            for said, value in selection.items():
                field, *modifiers = str(said).split("|")
                yield from _of_value(field, modifiers, value)
        case list():
            for member in selection:
                yield from _of_selection(member)
        case _:
            yield from _of_value("", [], selection)


def _of_value(field: str, modifiers: list[str], value: object) -> Iterator[tuple[str, str]]:
    match value:
        case list():
            for member in value:
                yield from _of_value(field, modifiers, member)
        case dict():
            yield from _of_selection(value)
        case str() if "re" in modifiers:
            yield field, value
        case str() if "cidr" not in modifiers:
            text = _written(value)
            anywhere = not field or "contains" in modifiers or any("base64" in word for word in modifiers)
            start = "" if anywhere or "endswith" in modifiers else "^"
            end = "" if anywhere or "startswith" in modifiers else "$"
            yield field, f"(?i){start}{text}{end}"


def _written(value: str) -> str:
    """Return a regular expression for a text with wildcards, which a backslash escapes."""
    written = []
    letters = iter(range(len(value)))
    for at in letters:
        letter = value[at]
        if letter == "\\" and value[at + 1 : at + 2] in _MEANINGFUL:
            letter = value[next(letters)]
            written.append(re.escape(letter))
        else:
            written.append({"*": ".*", "?": "."}.get(letter) or re.escape(letter))
    return "".join(written)
