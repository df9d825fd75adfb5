import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import UNSET

from api.cli.rule_files import documents, reading
from api.cli.rule_files.reading import RuleFileError, conditions_of, read_rules, rules_file_of


def entries_of(text: str, path: str) -> dict[str, str]:
    """The text of each rule."""
    return {name: rule.text for name, rule in rules_file_of(text, path).rules.items()}


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
    assert str(refusal.value) == "r.json: line 1, column 16: not JSON: trailing comma in object"
    assert entries_of("{a: b == 1}", "r.yaml") == {"a": "b == 1"}


def test_what_begins_without_a_brace_is_yaml_whatever_its_name() -> None:
    assert entries_of("a: b == 1", "r.json") == {"a": "b == 1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: x == 1\na: y == 2\n", "line 2, column 1: `a` is defined twice, first in line 1"),
        ("? [a, b]\n: x == 1\n", "line 1, column 3: a name must be text"),
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
        (
            'a: "b" == c',
            (
                "line 1, column 8: expected <block end>, but found '<scalar>'; "
                "quote the whole condition, or put it into the lines below `name: |`"
            ),
        ),
        (
            "a: `b c` == 1",
            (
                "line 1, column 4: found character '`' that cannot start any token; "
                "quote the whole condition, or put it into the lines below `name: |`"
            ),
        ),
        (
            "rules:\n\ta: b == 1",
            "line 2, column 1: found character '\\t' that cannot start any token; indent with spaces",
        ),
        ("rule:\n  a: b == 1\n", "line 1, column 1: `rule`: did you mean `rules`?"),
        ("detector: a\nrules:\n", "line 2, column 1: `rules` is empty"),
        ("a: [1]\n", "line 1, column 1: `a`: expected a condition as text or as an object"),
        ("on: x == 1\n", "line 1, column 1: the name `on` is read as true; quote it"),
        ("a: 'x\n", "line 2, column 1: found unexpected end of stream"),
        ("a: &x {b: *x}\n", "line 1, column 11: `*x` is an alias; write out what it stands for"),
        ("a: {<<: {b: 1}, b: 2}", "line 1, column 5: `<<` would merge mappings; quote it if it is a name"),
        ("a: {b: 1, c: 2,\n b: 3}", "line 2, column 2: `b` is defined twice, first in line 1"),
        (
            '{"a": "x",\n\n"b": [{"a": ","}],\n"\\u0061": "y"}',
            "line 4, column 1: `a` is defined twice, first in line 1",
        ),
        (
            '{"r": {"condition": "x", \n"condition": "y"}}',
            "line 2, column 1: `condition` is defined twice, first in line 1",
        ),
        (
            '{"a\\"{": "x", "b": "}", "a\\"{": 1}',
            'line 1, column 25: `a"{` is defined twice, first in line 1',
        ),
        ("a\x1b: x == 1", "line 1: the character U+001B is not allowed; write it as an escape"),
        ("a: {b: .inf}\n", "line 1, column 8: JSON has no .inf; quote it"),
        ("a: !!binary eA==\n", "line 1, column 4: the tag 'tag:yaml.org,2002:binary' is not taken"),
        ("a: b == 1\n---\nc: d == 1\n", "line 2, column 1: expected one document, found another"),
        ("a: " + "[" * 500, "line 1, column 103: it is nested more than 100 deep"),
        (
            "a:\n" + "".join(" " * n + "- \n" for n in range(500)),
            "line 101, column 100: it is nested more than 100 deep",
        ),
        (
            "a: !!python/object/apply:os.system ['true']\n",
            ("line 1, column 4: the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not taken"),
        ),
    ],
)
def test_a_file_that_is_no_rule_file_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(RuleFileError) as refusal:
        entries_of(text, "r.yaml")
    assert str(refusal.value) == f"r.yaml: {said}"


def test_names_are_those_that_the_service_takes() -> None:
    for name in ("\\u001b[2J", "", "\\u0085", "x" * 256):
        with pytest.raises(RuleFileError, match="`: name: expected 1 to 255 characters"):
            entries_of(f'{{"{name}": "a == 1"}}', "r.json")


def billion_laughs(levels: int) -> str:
    """YAML of a kilobyte that stands for nine to the power of the levels."""
    lines = ["l0: &l0 [x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_a_kilobyte_of_aliases_is_refused_at_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, events = yaml.parse, list[yaml.Event]()

    def counted(text: str, **given: Any) -> Iterator[yaml.Event]:
        for event in parse(text, **given):
            events.append(event)
            yield event

    monkeypatch.setattr(yaml, "parse", counted)
    with pytest.raises(RuleFileError, match=r"^r\.yaml: line 2, column 10: `\*l0` is an alias"):
        entries_of(billion_laughs(9), "r.yaml")
    assert len(events) < 15


def test_yaml_that_takes_minutes_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "YAML_CHARS_MAX", 1 << 20)
    text = "a: b == 1\n" + "# \n" * (1 << 19)
    with pytest.raises(RuleFileError, match="YAML of more than 1 MiB is not read; write it as JSON"):
        entries_of(text, "r.yaml")
    assert entries_of('{"a": "b == 1"' + " " * (1 << 20) + "}", "r.json")


def test_a_file_without_an_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FILE_BYTES_MAX", 1 << 20)
    with pytest.raises(RuleFileError, match="/dev/zero: it has more than 1 MiB"):
        read_rules("/dev/zero")


def test_a_file_may_be_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("a: b == 1\n",))
    writer.start()
    [rule] = read_rules(str(pipe))
    writer.join()
    assert rule.name == "a"


def test_the_defects_of_all_rules_are_told_together() -> None:
    with pytest.raises(RuleFileError) as refusal:
        entries_of(
            "'': a == 1\ngood: a == 1\nbad: [1]\ndraft: {condition: a == 1, draftOf: draft}\n", "r.yaml"
        )
    assert str(refusal.value).splitlines() == [
        (
            "r.yaml: line 1, column 1: ``: name: expected 1 to 255 characters, no control characters but tab "
            "and newline"
        ),
        "r.yaml: line 3, column 1: `bad`: expected a condition as text or as an object",
        "r.yaml: line 4, column 1: `draft`: draftOf: `draft` is a shadow rule itself",
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
        "plain": (UNSET, UNSET, UNSET),
        "written": (True, UNSET, UNSET),
        "quiet": (False, True, UNSET),
        "draft": (UNSET, True, "plain"),
        "condition": (UNSET, UNSET, UNSET),
    }
    assert rules[0].condition == rules[1].condition == rules[4].condition


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            "{condition: a == 1, shadwo: true}",
            "line 1, column 24: `r`: shadwo: unknown member; did you mean `shadow`?",
        ),
        ("{condition: a == 1, one: true}", "line 1, column 24: `r`: one: unknown member"),
        (
            "{condition: a == 1, shadow: 1}",
            "line 1, column 24: `r`: shadow: expected a boolean, got a number",
        ),
        (
            "{condition: a == 1, draftOf: ''}",
            "`r`: draftOf: expected the name of a rule, got an empty string",
        ),
        ("{condition: a == 1, draftOf: x, shadow: false}", "`r`: shadow: a draft is a shadow rule"),
        ("{shadow: true}", "line 1, column 1: `r`: condition: missing"),
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
    with pytest.raises(RuleFileError, match="a == 1: no such file or directory; a condition stands"):
        read_rules("a == 1")
    (tmp_path / "r.yaml").write_bytes(b"r: \xff")
    with pytest.raises(RuleFileError, match=r"r\.yaml: byte 3 is not valid UTF-8"):
        read_rules(str(tmp_path / "r.yaml"))
