import json
from pathlib import Path

import pytest

from api.cli.rule_files import RuleFileError, conditions_of, entries_of, read_rules


def test_yaml_and_json_give_the_same_entries() -> None:
    rules = {"one": "a == 1", "two": {"leaf": {"fact": "b", "op": "eq", "value": 1e300}}}
    from_json = entries_of(json.dumps(rules), "r.json")
    from_yaml = entries_of("one: a == 1\ntwo:\n  leaf: {fact: b, op: eq, value: 1.0e+300}\n", "r.yaml")
    assert from_json == from_yaml
    assert json.loads(from_json["two"]) == rules["two"]


def test_integers_of_any_size_survive() -> None:
    text = '{"r": {"leaf": {"fact": "b", "op": "eq", "value": 123456789012345678901234567890}}}'
    assert "123456789012345678901234567890" in entries_of(text, "r.json")["r"]


def test_yaml_blocks_keep_their_lines_and_comments() -> None:
    [rule] = conditions_of("r: |\n  a == 1  # one\n  and b == 2\n", "r.yaml")
    assert rule.text == "a == 1  # one\nand b == 2\n"


def test_json_that_is_none_is_called_so_and_not_bad_yaml() -> None:
    with pytest.raises(RuleFileError, match=r"r\.json: not JSON"):
        entries_of('{"a": "b == 1",}', "r.json")
    assert entries_of("{a: b == 1}", "r.yaml") == {"a": "b == 1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: x == 1\na: y == 2\n", "line 2, column 1: `a` is defined twice"),
        ("- x == 1\n", "expected a mapping"),
        ("", "expected a mapping"),
        ("just text", "expected a mapping"),
        ("a: [1]\n", "`a`: expected a condition as text"),
        ("on: x == 1\n", "`True`: a rule's name must be text"),
        ("a: 'x\n", "line 2, column 1"),
        ("a: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
    ],
)
def test_a_file_that_is_no_rule_file_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(RuleFileError, match=r"^r\.yaml: ") as refusal:
        entries_of(text, "r.yaml")
    assert said in str(refusal.value)


def test_the_defects_of_all_conditions_are_told_together() -> None:
    with pytest.raises(RuleFileError) as refusal:
        conditions_of("good: a == 1\nbad: a ==\nworse: a between 2 and 1\n", "r.yaml")
    first, *rest = str(refusal.value).split("r.yaml: ")[1:]
    assert first.startswith("`bad`: 1300 ")
    assert rest[0].startswith("`worse`: 1301 ")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(RuleFileError, match=r"nowhere\.yaml: no such file or directory"):
        read_rules(str(tmp_path / "nowhere.yaml"))
    (tmp_path / "r.yaml").write_bytes(b"r: \xff")
    with pytest.raises(RuleFileError, match=r"r\.yaml: byte 3 is not valid UTF-8"):
        read_rules(str(tmp_path / "r.yaml"))
