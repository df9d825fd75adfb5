"""The schema of rules files takes what the reader takes, and refuses what it can tell is wrong."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import api
from api.cli.rule_files.documents import Document
from api.cli.sample import RULES
from tests.unit.cli.commands import run

PAGES = [
    path
    for path in sorted(Path(api.__file__).parents[1].rglob("*.md"))
    if not {".venv", "node_modules"} & {*path.parts}
]
REFUSED = Path(__file__).parent / "refused"


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    document = json.loads(run("check --schema").stdout)
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


def examples() -> list[str]:
    """The rules files of all pages: YAML after a comment that says so, or with `rules:`."""
    found = [RULES.read_text("utf-8")]
    for page in PAGES:
        blocks = re.findall(
            r"(<!-- (?:a|the) rules? file -->\n)?```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL
        )
        found += [text for is_said, text in blocks if is_said or re.search(r"^rules:", text, re.MULTILINE)]
    return found


def value_of(text: str) -> Any:
    return Document(text, is_json=False).value


@pytest.mark.parametrize("text", examples())
def test_every_example_and_the_sample_is_valid(schema: jsonschema.Draft202012Validator, text: str) -> None:
    schema.validate(value_of(text))


def test_there_are_examples() -> None:
    assert len(examples()) > 3


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("rules: {r: {condition: a == 1, notfy: true}}", ["rules", "r"]),
        ("rules: {r: {condition: a == 1, notify: 'yes'}}", ["rules", "r"]),
        ("rules: {r: {condition: a == 1, history: drop}}", ["rules", "r"]),
        ("rules: {r: {condition: a == 1, labels: {x: [1]}}}", ["rules", "r"]),
        ("rules: {r: {condition: a == 1, tests: [{events: []}]}}", ["rules", "r"]),
        ("rules: {r: {condition: a == 1, tests: [{events: [], fires: [0]}]}}", ["rules", "r"]),
        ("rules: {r: {condition: a == 1, tests: [{events: [], fires: [{}]}]}}", ["rules", "r"]),
        (
            "rules: {r: {condition: a == 1, tests: [{events: [], fires: [{line: 1, time: '2024-01-01'}]}]}}",
            ["rules", "r"],
        ),
        ("rules: {r: {leef: {}}}", ["rules", "r"]),
        ("rules: {r: {leaf: {fact: a, op: eqq, value: 1}}}", ["rules", "r"]),
        ("rules: {r: 7}", ["rules", "r"]),
        ("{rules: {r: a == 1}, detectr: x}", []),
        ("{rules: {r: a == 1}, relations: {x: {fil: y}}}", ["relations", "x"]),
        ("{rules: {r: a == 1}, relations: {x: [[{}]]}}", ["relations", "x"]),
        ("{rules: {r: a == 1}, define: {x: 1}}", ["define", "x"]),
        ("r: [a]", ["r"]),
        ("{}", []),
        ("[]", []),
    ],
)
def test_what_is_wrong_is_found_at_its_place(
    schema: jsonschema.Draft202012Validator, text: str, place: list[str]
) -> None:
    places = [list(error.absolute_path) for error in schema.iter_errors(yaml.safe_load(text))]
    assert place in [each[: len(place)] for each in places]


@pytest.mark.parametrize("file", ["members.json", "top.yaml"])
def test_files_with_wrong_members_are_refused_by_both(
    schema: jsonschema.Draft202012Validator, file: str
) -> None:
    assert not schema.is_valid(value_of((REFUSED / file).read_text("utf-8")))


def test_members_are_described(schema: jsonschema.Draft202012Validator) -> None:
    parts = schema.schema["$defs"]
    for name in ("WholeFile", "RuleMembers", "RuleTest", "Firing", "RelationFile"):
        for member, said in parts[name]["properties"].items():
            assert said.get("description"), f"{name}.{member}"
