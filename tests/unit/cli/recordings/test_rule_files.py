import json
import re
from pathlib import Path

import pytest

import api
from api.cli.rule_files import RuleFileError, conditions_of, entries_of, read_rules

PAGE = (Path(api.__file__).parent / "CLIENT.md").read_text("utf-8")


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
    with pytest.raises(RuleFileError) as refusal:
        entries_of('{"a": "b == 1",}', "r.json")
    assert str(refusal.value) == "r.json: not JSON: trailing comma in object (byte 15)"
    assert entries_of("{a: b == 1}", "r.yaml") == {"a": "b == 1"}


def test_what_begins_without_a_brace_is_yaml_whatever_its_name() -> None:
    assert entries_of("a: b == 1", "r.json") == {"a": "b == 1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: x == 1\na: y == 2\n", "line 2, column 1: `a` is defined twice"),
        ("? [a, b]\n: x == 1\n", "line 1, column 3: found unhashable key"),
        ("- x == 1\n", "expected a mapping `name: condition`"),
        ("", "expected a mapping `name: condition`"),
        ("{}", "expected a mapping `name: condition`"),
        ("just text", "expected a mapping `name: condition`"),
        (
            "a: b: c == 1",
            "line 1, column 5: mapping values are not allowed here; quote a name or condition with `: `",
        ),
        (
            '{"a": 1}\n{"a": 2}\n',
            (
                "line 2, column 1: expected '<document start>', but found '{'; "
                "expected one mapping `name: condition`"
            ),
        ),
        ("a: [1]\n", "`a`: expected a condition as text or as an object"),
        ("on: x == 1\n", "`True`: a rule's name must be text; quote it"),
        ("a: 'x\n", "line 2, column 1: found unexpected end of stream"),
        ("a: &x {b: *x}\n", "`a`: Circular reference detected"),
        ("a: {b: 2020-01-01}\n", "`a`: it holds what JSON has not, such as a date; quote it"),
        ("a: " + "[" * 500, "it is nested too deeply"),
        (
            "a: !!python/object/apply:os.system ['true']\n",
            (
                "line 1, column 4: could not determine a constructor for the tag "
                "'tag:yaml.org,2002:python/object/apply:os.system'"
            ),
        ),
    ],
)
def test_a_file_that_is_no_rule_file_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(RuleFileError) as refusal:
        entries_of(text, "r.yaml")
    assert str(refusal.value) == f"r.yaml: {said}"


def test_the_defects_of_all_rules_are_told_together() -> None:
    with pytest.raises(RuleFileError) as refusal:
        entries_of("on: a == 1\ngood: a == 1\nbad: [1]\ndraft: {condition: a, draftOf: draft}\n", "r.yaml")
    assert str(refusal.value).splitlines() == [
        "r.yaml: `True`: a rule's name must be text; quote it",
        "r.yaml: `bad`: expected a condition as text or as an object",
        "r.yaml: `draft`: draftOf: `draft` is a shadow rule itself",
    ]


def test_a_rule_may_notify_be_a_shadow_rule_or_a_draft() -> None:
    rules = conditions_of(
        """
plain: a == 1
written:
  condition: {leaf: {fact: a, op: eq, value: 1}}
  notify: true
quiet: {condition: a == 2, shadow: true, notify: false}
draft: {condition: a == 3, draftOf: plain}
condition: {leaf: {fact: a, op: eq, value: 1}}
""",
        "r.yaml",
    )
    told = {rule.name: (rule.members.notify, rule.members.shadow, rule.members.draft_of) for rule in rules}
    assert told == {
        "plain": (None, None, None),
        "written": (True, None, None),
        "quiet": (False, True, None),
        "draft": (None, True, "plain"),
        "condition": (None, None, None),
    }
    assert rules[0].condition == rules[1].condition == rules[4].condition


def test_the_file_on_the_page_is_one() -> None:
    [block] = re.findall(r"<!-- a rule file -->\n```yaml\n(.*?)```", PAGE, re.DOTALL)
    live, draft, night = conditions_of(block, "r.yaml")
    assert (live.members.notify, draft.members.draft_of, night.members.shadow) == (True, live.name, True)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("{condition: a == 1, shadwo: true}", "`r`: there is no member `shadwo`; did you mean `shadow`?"),
        ("{condition: a == 1, 1: true}", "`r`: there is no member `1`; a rule has `condition`,"),
        ("{condition: a == 1, shadow: 1}", "`r`: shadow: expected true or false"),
        ("{condition: a == 1, draftOf: ''}", "`r`: draftOf: expected the name of a rule"),
        ("{condition: a == 1, draftOf: x, shadow: false}", "`r`: shadow: a draft is a shadow rule"),
        ("{shadow: true}", "`r`: condition: expected text or an object"),
        ("{condition: a == 1, draftOf: r}", "`r`: draftOf: `r` is a shadow rule itself"),
        (
            "{condition: a == 1, draftOf: x}\ns: {condition: a == 2, draftOf: x}",
            "`s`: draftOf: `x` has a draft",
        ),
        ("{condition: a ==, shadow: true}", "`r`: 1300 "),
    ],
)
def test_what_a_rule_cannot_be_is_told(rule: str, said: str) -> None:
    with pytest.raises(RuleFileError) as refusal:
        conditions_of(f"r: {rule}\n", "r.yaml")
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
