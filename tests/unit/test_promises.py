"""The pages promise nothing that is not there: operations, members, options and conditions that they name.

Others run the requests that the pages show, and the examples of the language.
"""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from api.cli import main
from api.cli.rule_files.schema import rules_file_schema
from api.http.routes import OPERATIONS
from api.schema.openapi import document
from engine import parse
from engine.language.diagnostics import ConditionError
from engine.language.forms.table import FORMS

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(page for folder in ("engine", "api", "snapshots") for page in (ROOT / folder).glob("*.md")),
]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

METHODS = "GET|POST|PUT|PATCH|DELETE"
NOT_THERE = {"/api/nowhere"}
"""Shown as a path that is refused."""
CLOSING_LINE = {"done"}
"""What closes a stream: OpenAPI describes its lines as text."""
NO_COMMAND = {"data"}
"""The first line of a data folder's identity is `rule-detector data folder`."""
UNDESCRIBED = {"/metrics", "/openapi.json", "/docs", "/console"}
"""What OpenAPI does not describe: pages, and the description itself."""


@cache
def operations() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = document(OPERATIONS)["paths"]
    return found


def operation_of(path: str) -> dict[str, Any] | None:
    """The methods of a path, in which a placeholder or an id may stand for a parameter."""
    for known in operations():
        named = re.escape(known).replace(r"\{name\}", "[^/]+")
        pattern = re.sub(r"\\\{\w+\\\}", r"(?:[{]\\w+[}]|\\$[A-Z_]+|[0-9a-f]{32}|[A-Z]+)", named)
        if re.fullmatch(pattern, path):
            return operations()[known]
    return None


def refuted_paths(text: str) -> Iterator[str]:
    """What a text says of operations and their queries that is not so."""
    for method, path, query in re.findall(
        rf"(?:\b({METHODS}) )?(?<![\w.])(/api/[^\s`|\"'),;?]*)(?:\?([^\s`|\"')]*))?", text
    ):
        # The end of a sentence; and a name in place of an id.
        path = re.sub("name:[^/]+", "{detectorId}", path.rstrip(".:"))  # noqa: PLW2901
        if path in NOT_THERE or "…" in path:
            continue
        methods = operation_of(path)
        if methods is None or (method and method.lower() not in methods):
            yield f"{method} {path}"
            continue
        known = {
            parameter["name"]
            for name, described in methods.items()
            if method.lower() in {"", name}
            for parameter in described.get("parameters", ())
            if parameter["in"] == "query"
        }
        yield from (f"{path}?{name}" for name in re.findall(r"(?:^|&)(\w+)=", query) if name not in known)
    for path in re.findall(rf"\b(?:{METHODS}) (/[^\s`|\"'),;?]*)", text):
        if not path.startswith("/api/") and path not in operations() and path not in UNDESCRIBED:
            yield path


@cache
def members() -> frozenset[str]:
    """The names of the members of all bodies, results and rules files."""
    found: set[str] = set()
    pending: list[Any] = [document(OPERATIONS), rules_file_schema()]
    while pending:
        match pending.pop():
            case dict(node):
                if isinstance(node.get("properties"), dict):
                    found |= node["properties"].keys()
                pending += node.values()
            case list(nodes):
                pending += nodes
    return frozenset(found)


def refuted_members(text: str) -> Iterator[str]:
    """The members in `{name, other?: {…}}` that no body and no result has."""
    for shape in re.findall(r"`(\{[^`\"]*\})`", text):
        yield from (
            name
            for name in re.findall(r"\b([a-z]\w*)\??(?=[,:}\]])", shape)
            if name not in members() | CLOSING_LINE
        )


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that words begin with, and its other words."""
    command: click.Command = main
    while isinstance(command, click.Group) and words:
        nested = command.get_command(click.Context(command), words[0])
        if nested is None:
            break
        command, words = nested, words[1:]
    return command, words


def refuted_options(text: str) -> Iterator[str]:
    """The commands of the program, and their options, that it does not have."""
    joined = text.replace("\\\n", " ")
    for line in re.findall(r"(?:^|[\s`/])rule-detector ([^`\n|&;>#]*)", joined):
        try:
            words = shlex.split(line)
        except ValueError:
            words = line.split()
        command, rest = command_of(words)
        if command is main:
            if (
                words
                and words[0] not in NO_COMMAND
                and re.fullmatch(r"[a-z]+", words[0])
                and f"`rule-detector {words[0]}" in joined
            ):
                yield f"rule-detector {words[0]}"
            continue
        known = {"--help", "-h"}.union(*(one.opts + one.secondary_opts for one in command.params))
        for word in rest:
            if word.startswith("--") and word != "--" and word.split("=")[0] not in known:
                yield f"rule-detector {command.name} {word}"


def refuted_conditions(text: str) -> Iterator[str]:
    """The conditions in files of rules that cannot be read."""
    for condition in re.findall(r"^ +condition: ([^{}\n\"'|>][^\n]*)$", text, re.MULTILINE):
        try:
            parse(condition)
        except ConditionError:
            yield condition


CHECKS = (refuted_paths, refuted_members, refuted_options, refuted_conditions)


@every_page
def test_a_page_names_only_what_is_there(page: Path) -> None:
    text = page.read_text("utf-8")
    assert [said for check in CHECKS for said in check(text)] == []


@pytest.mark.parametrize(
    ("text", "refuted"),
    [
        (
            "`PUT /api/detectors/{detectorId}/relation/{name}`",
            "PUT /api/detectors/{detectorId}/relation/{name}",
        ),
        ("PUT /api/detectors/$DETECTOR", "PUT /api/detectors/$DETECTOR"),
        ("`GET /api/detectors?limt=5`", "/api/detectors?limt"),
        ("a request to /api/chances", " /api/chances"),
        ("| `GET /ready` |", "/ready"),
        ("`{condition, name, timid?}`", "timid"),
        ("`{events: [{fields, tyme}]}`", "tyme"),
        ("`rule-detector appy rules.yaml`", "rule-detector appy"),
        ("```sh\nrule-detector try r.yaml \\\n  --varz v.json e.ndjson\n```", "rule-detector try --varz"),
        ("r:\n  condition: exist user\n", "exist user"),
    ],
)
def test_what_is_not_there_is_found(text: str, refuted: str) -> None:
    assert [said for check in CHECKS for said in check(text)] == [refuted]


def test_the_pages_name_enough_to_be_checked() -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    named = {path for path in operations() if any(part in text for part in (path, path.split("{")[0]))}
    assert named == operations().keys()
    assert len(re.findall(r"rule-detector [a-z]", text)) > 40


OTHERS = re.compile(r"(?:rule_detector|RULE_DETECTOR|OTEL|RAY)_")
"""How metrics and settings begin, which other tests hold to the program, and what others define."""
OF_KUBERNETES = {"emptyDir", "gcsFaultToleranceOptions", "maxReplicas", "minReplicas", "preStop"}
OF_SIGMA = {"event_count", "temporal_ordered", "value_avg", "value_count", "value_sum"}
OF_SENDERS = {"confluent_kafka", "json_batch"}
NAMED = re.compile(r"`([A-Za-z]+(?:_[A-Za-z0-9]+)+|[a-z]+[A-Z][A-Za-z]*)`")
"""A member, parameter or name of several words between backquotes: `timestamp_ms`, `ruleId`."""


@cache
def words_of_the_program() -> frozenset[str]:
    sources = [
        path
        for folder in ("api", "engine", "snapshots")
        for kind in ("*.py", "*.lark")
        for path in (ROOT / folder).rglob(kind)
    ]
    written = {word for path in sources for word in re.findall(r"\w+", path.read_text("utf-8"))}
    return frozenset(written | FORMS.keys())


def refuted_names(text: str) -> list[str]:
    """The names of several words in running text that nothing in the program has."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = sorted(set(NAMED.findall(prose)) - OF_KUBERNETES - OF_SIGMA - OF_SENDERS - words_of_the_program())
    return [name for name in found if not OTHERS.match(name)]


@every_page
def test_a_member_named_in_running_text_is_in_the_program(page: Path) -> None:
    assert refuted_names(page.read_text("utf-8")) == []


def test_a_member_that_is_not_there_is_noticed() -> None:
    assert refuted_names("`timestamp_ms`, `ruleId`, `stored_relations` and `relationId`") == [
        "relationId",
        "stored_relations",
    ]
