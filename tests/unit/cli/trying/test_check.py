import json
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import Result

from api.cli.rule_files.reading import line_conditions
from engine import format, parse  # noqa: A004 -- the engine's name for it
from engine.language.json.writer import condition_to_document
from tests.unit.cli.commands import run


def check(text: str | bytes, *arguments: object, status: int = 0) -> Result:
    return run("check", *arguments, input=text, status=status)


def check_file(path: Path, content: str | bytes, status: int = 0) -> Result:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return run("check", path, status=status)


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_a_condition_is_shown_in_both_forms(arguments: list[str]) -> None:
    condition = parse("a == 1 and b > 2")
    name, text, document = check("a=1 and\n  b>2 # sugar\n", *arguments).stdout.splitlines()
    assert name == "line 1:"
    assert text == f"  text  {format(condition)}"
    assert json.loads(document.split("json")[1]) == condition_to_document(condition)


def test_the_code_of_a_condition_is_shown_and_is_python() -> None:
    output = check("per user once within 10m ok == false\n", "--code").output
    code = dedent(output.partition("  code\n")[2])
    assert code.startswith("n0 = 'user'\n")
    compile(code, "code", "exec")
    assert "code\n" not in check("ok == false\n").output


def test_what_is_refused_is_said_on_standard_error_with_its_place_and_the_rest_is_shown() -> None:
    found = check("a == 1\nb ==\nc == 3\n", status=1)
    assert "line 1:" in found.stdout
    assert "line 3:" in found.stdout
    assert "line 2: refused\n  1300 line 1, column 5: " in found.stderr
    assert found.stderr.endswith("rule-detector: 1 of 3 conditions refused\n")


def test_all_defects_of_a_condition_are_shown() -> None:
    assert check("a between 2 and 1 or b in [1, 'x']", status=1).stderr.count("  1301 ") == 2


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_no_condition_at_all_is_a_failure(text: str) -> None:
    assert "standard input: no condition in it" in check(text, status=1).stderr


def test_lines_that_go_on_with_a_condition_are_indented_or_begin_with_a_joining_word() -> None:
    text = "# first\na == 1\n  # why\n  and b == 2\n\nper x (\n  c == 3\n)\nsince d == 4\norder == 5\n"
    assert line_conditions(text) == {
        "line 2": "a == 1\n  # why\n  and b == 2\n",
        "line 6": "per x (\n  c == 3\n)\nsince d == 4",
        "line 10": "order == 5",
    }


def test_rule_files_show_each_rule_under_its_name(tmp_path: Path) -> None:
    found = check_file(tmp_path / "r.yaml", "one: a == 1\ntwo: b ==\n", status=1)
    assert found.stdout.startswith("one:\n  text  a == 1\n")
    assert found.stderr.startswith("two: refused\n")
    named = check_file(tmp_path / "r.txt", "one: a == 1\n", status=1).stderr
    assert named.endswith(
        "1 of 1 condition refused; rules with names stand in a file named .yaml, .yml or .json\n"
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"not": {"leaf": {"fact": "a", "op": "eq", "value": 1}}}', ["line 1"]),
        ('{"name": "a == 1"}', ["name"]),
        ('{"not": "a == 1", "other": "b == 2"}', ["not", "other"]),
        *((text, []) for text in ("[1]", '["a == 1"]', "{}", "7")),
        ('{\n "not": {\n  "leaf": {"fact": "a", "op": "eq", "value": 1}\n }\n}', ["line 1"]),
    ],
)
def test_a_json_file_holds_one_condition_or_rules(tmp_path: Path, text: str, names: list[str]) -> None:
    path = tmp_path / "r.json"
    found = check_file(path, text, status=0 if names else 1)
    if not names:
        assert found.stderr == f"rule-detector: {path}: expected a mapping `name: condition`\n"
    assert [line.rstrip(":") for line in found.stdout.splitlines() if line.endswith(":")] == names


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    said = "byte 0 is not valid UTF-8"
    assert said in check_file(tmp_path / "r.txt", b"\xff", status=1).stderr
    check("", tmp_path / "nowhere", status=1)
    assert check(b"\xff", status=1).stderr == f"rule-detector: standard input: {said}\n"


EVENTS = '{"user": {"id": 7}, "kind": "failed"}\n{"user": {"id": 8}, "kind": "accepted", "tags": ["a"]}\n'


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ('kynd == "failed"', "no event has `kynd`; did you mean `kind`?"),
        ('user.id == "7"', "always false: `user.id` is a number in every event that has it, never a string"),
        ("tags contains 7", "always false: the arrays in `tags` hold a string"),
        ("rooms(user.id)", "looks in the relation `rooms`, which is not known"),
    ],
)
def test_what_is_valid_but_hardly_meant_is_warned_of(condition: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "e.ndjson").write_text(EVENTS)
    found = check(f"user.id == 7\n{condition}\n", "--events", tmp_path / "e.ndjson")
    [warning] = found.stderr.splitlines()
    assert warning.startswith("line 2: warning: ")
    assert said in warning


def test_without_events_only_relations_can_be_warned_of() -> None:
    assert "which is not known" in check("owns(ip)").stderr
    assert check("owns(ip) and kynd == 1", "--relation", "owns").stderr == ""


def test_rules_of_a_file_that_are_equal_are_told_unless_one_is_a_shadow_rule(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    rules = [
        "a: x == 1 and y == 2",
        "b: x == 1",
        "c: y == 2 and x == 1",
        "d: {condition: x == 1, shadow: true}",
    ]
    [warning] = check_file(path, "".join(f"{rule}\n" for rule in rules)).stderr.splitlines()
    said = (
        "the condition is equal to that of the rule `a`, up to the order of its parts; remove one of the two"
    )
    assert warning == f"{path}, line 3: c: warning: {said}"


def test_a_warning_names_the_line_of_its_rule_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    rules = "detector: d\nrules:\n  fine: a == 1\n\n  doubtful:\n    condition: previous x != x\n"
    lines = check_file(path, rules).stderr.splitlines()
    assert lines
    assert all(line.startswith(f"{path}, line 5: doubtful: warning: ") for line in lines)
