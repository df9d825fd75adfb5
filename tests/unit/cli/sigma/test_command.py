"""The command `sigma`: what it writes, what it leaves out and why."""

import re
import sys
from pathlib import Path

import pytest
from click.testing import Result

from api.cli.rule_files.reading import conditions_of
from engine import Detector
from tests.unit.cli.commands import run

RULE = """
title: {title}
id: 1a2b3c4d-0000-4000-8000-00000000000{number}
status: test
level: high
description: A tool that dumps secrets.
author: Ada
references: [https://example.org/x]
tags: [attack.execution]
logsource: {{product: windows, category: process_creation}}
detection:
  selection: {{{selection}}}
  condition: selection
"""
KEYWORDS = """
title: Words
logsource: {product: linux}
detection:
  keywords: [alpha, 'be?a']
  condition: keywords
"""
FILTER = """
title: Not the server
logsource: {product: windows, category: process_creation}
filter:
  rules: [1a2b3c4d-0000-4000-8000-000000000001]
  selection: {Computer: server}
  condition: not selection
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules" / "inner").mkdir(parents=True)
    written(
        tmp_path / "rules" / "b.yml", RULE.format(title="Dump", number=1, selection="Image: '*\\dump.exe'")
    )
    written(tmp_path / "rules" / "inner" / "a.yaml", RULE.format(title="Count", number=2, selection="Id: 7"))
    return tmp_path / "rules"


def written(path: Path, text: str) -> str:
    path.write_text(text, "utf-8")
    return str(path)


def sigma(*arguments: object, status: int = 0) -> Result:
    return run("sigma", *arguments, status=status)


def conditions(result: Result) -> dict[str, str]:
    return {rule.name: rule.text for rule in conditions_of(result.stdout, "rules.yaml")}


def fires(text: str, **fields: object) -> bool:
    detector = Detector()
    detector.add_rule("rule", text)
    return bool(detector.evaluate(fields, 0))


def test_writes_a_rules_file_that_tells_what_sigma_says_about_each_rule(folder: Path) -> None:
    result = sigma(folder)
    assert result.stderr == "2 rules converted, 0 left out\n"
    assert [*conditions(result)] == ["Dump", "Count"]
    assert result.stdout.startswith(
        "rules:\n  Dump:\n    description: A tool that dumps secrets.\n    labels:\n"
        "      level: high\n      status: test\n      author: Ada\n"
        "      id: 1a2b3c4d-0000-4000-8000-000000000001\n      tags: attack.execution\n"
        "      references: https://example.org/x\n    condition: Image iendswith"
    )
    assert fires(conditions(result)["Dump"], Image="C:\\DUMP.exe")
    assert sigma(folder).stdout == result.stdout


def test_the_example_of_the_page_is_true(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "api" / "CLIENT.md").read_text("utf-8")
    [rule] = re.findall(r"<!-- a sigma rule -->\n```yaml\n(.*?)```", page, re.DOTALL)
    [options] = re.findall(r"^rule-detector sigma tool.yml (.*) > rules.yaml$", page, re.MULTILINE)
    [expected] = re.findall(r"<!-- the rule file -->\n```yaml\n(.*?)```", page, re.DOTALL)
    assert sigma(written(tmp_path / "tool.yml", rule), *options.split()).stdout == expected


def test_rules_with_one_title_are_told_apart_by_their_ids(folder: Path) -> None:
    written(folder / "c.yml", RULE.format(title="Dump", number=3, selection="a: b"))
    written(folder / "d.yml", RULE.format(title="Dump", number=4, selection="a: c"))
    names = [*conditions(sigma(folder))]
    assert names == ["Dump (1a2b3c4d)", "Dump (2)", "Dump (3)", "Count"]


def test_what_is_left_out_is_listed_with_the_reason(folder: Path) -> None:
    words = written(folder / "words.yml", KEYWORDS.replace("[alpha, 'be?a']", "{'a|re': 'x(?!y)'}"))
    result = sigma(folder)
    assert result.stderr.startswith(f"left out: {words}: `Words`: ")
    assert result.stderr.endswith("\n2 rules converted, 1 left out\n")
    strict = sigma(folder, "--strict", status=1)
    assert strict.stdout == ""
    assert strict.stderr.endswith("rule-detector: 2 rules converted, 1 left out\n")
    assert sigma(words, status=1).stdout == ""


def test_keywords_are_searched_in_all_strings_or_in_the_fields_that_are_named(folder: Path) -> None:
    words = written(folder / "words.yml", KEYWORDS)
    condition = conditions(sigma(words))["Words"]
    assert condition == 'anywhere (it icontains "alpha" or it ilike "*be?a*")'
    assert fires(condition, message="an ALPHA case")
    assert fires(condition, deep={"in": ["x", {"it": "a beta case"}]})
    assert not fires(condition, message="gamma", alpha=1)
    condition = conditions(sigma(words, "--keywords", "message", "--keywords", "raw"))["Words"]
    assert fires(condition, message="an ALPHA case")
    assert fires(condition, raw="a beta case")
    assert not fires(condition, message="gamma", other="alpha")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "while parsing a flow node"),
        ("- a", "expected a Sigma rule, which is a mapping"),
        ("title: x", "Sigma rule must have a detection definitions"),
        (RULE.format(title="x", number=1, selection="a|unknown: b"), "Unknown modifier 'unknown'"),
        (RULE.format(title="x", number=1, selection="a|re: '(?=b)'"), "the regular expression is refused"),
        (RULE.format(title="x", number=1, selection="a|expand: '%b%'"), "the placeholder `%b%` has no value"),
        (RULE.format(title="x", number=1, selection="a|week: 3"), "the week of a time"),
        (RULE.format(title="x", number=1, selection="a: 9007199254740993"), "write it as a text"),
        (
            RULE.format(title="x", number=1, selection="a|fieldref: $b"),
            "names that begin with `$` are variables",
        ),
        (FILTER.replace("condition: not selection", ""), "must contain exactly one condition"),
        (
            FILTER.replace("logsource: {product: windows, category: process_creation}", ""),
            "have a log source",
        ),
        ("action: unknown", "Unknown Sigma collection action"),
        (RULE.format(title="x", number=1, selection="$a: b"), "names that begin with `$` are variables"),
        (
            RULE.format(title="x", number=1, selection="a: b").replace("condition: sel", "condition: no"),
            "'noection' not",
        ),
    ],
)
def test_what_cannot_be_converted_is_told_and_others_are_written(folder: Path, text: str, said: str) -> None:
    path = written(folder / "z.yml", text)
    result = sigma(folder)
    assert [*conditions(result)] == ["Dump", "Count"]
    [line, summary] = result.stderr.splitlines()
    assert line.startswith(f"left out: {path}: ")
    assert said in line
    assert summary == "2 rules converted, 1 left out"


def test_log_sources_become_conditions_where_they_are_mapped(folder: Path) -> None:
    mappings = [
        "windows/process_creation:EventID=1|4688",
        "windows//security:Channel=Security",
        "linux:os=linux",
    ]
    given = [part for mapping in mappings for part in ("--logsource", mapping)]
    condition = conditions(sigma(folder, *given))["Dump"]
    assert "Channel" not in condition
    assert fires(condition, Image="x\\dump.exe", EventID=1)
    assert fires(condition, Image="x\\dump.exe", EventID="4688")
    assert not fires(condition, Image="x\\dump.exe", EventID=2)
    assert not fires(condition, EventID=1)


@pytest.mark.parametrize("mapping", ["windows", "windows:a", ":a=b", "//:a=b", "a/b/c/d:e=f", "a:=b"])
def test_a_mapping_of_a_log_source_that_says_nothing_is_refused(folder: Path, mapping: str) -> None:
    result = sigma(folder, "--logsource", mapping, status=2)
    assert "expected PRODUCT/CATEGORY/SERVICE:FIELD=VALUE" in result.stderr


def test_a_log_source_is_not_told_by_a_variable(folder: Path) -> None:
    assert "`$` are variables" in sigma(folder, "--logsource", "windows:$a=b", status=2).stderr


def test_pipelines_are_applied(folder: Path, tmp_path: Path) -> None:
    pipeline = """
    name: fields
    priority: 10
    transformations:
      - {id: names, type: field_name_mapping, mapping: {Image: process.executable}}
    """
    converted = sigma(folder, "--pipeline", written(tmp_path / "fields.yml", pipeline))
    assert fires(conditions(converted)["Dump"], process={"executable": "dump\\DUMP.EXE"})
    written(tmp_path / "bad.yml", "transformations: [{type: no}]")
    bad = sigma(folder, "--pipeline", tmp_path / "bad.yml", status=1)
    assert bad.stderr.startswith("rule-detector: --pipeline: Error in processing rule 1")


def test_a_rule_that_a_pipeline_refuses_or_empties_is_left_out(folder: Path, tmp_path: Path) -> None:
    field = "field_name_conditions: [{type: include_fields, fields: [Id]}]"
    for kind, said in (
        ("drop_detection_item", "the pipeline removed"),
        ("detection_item_failure, message: not here", "not here"),
    ):
        pipeline = f"transformations: [{{type: {kind}, {field}}}]"
        result = sigma(folder, "--pipeline", written(tmp_path / "p.yml", pipeline))
        assert [*conditions(result)] == ["Dump"]
        assert f"`Count`: {said}" in result.stderr


@pytest.mark.parametrize(
    ("member", "label"),
    [
        ("title: [1]", None),
        ("author: [ada, 1]", "author: ada, 1"),
        ("references: https://example.com/a", "references: https://example.com/a"),
        ("references: 5", "references: '5'"),
    ],
)
def test_members_of_a_wrong_type_keep_no_rule_out(folder: Path, member: str, label: str | None) -> None:
    title = "title: x\n" if label else ""
    written(folder / "z.yml", f"{title}{member}\ndetection: {{a: {{b: 1}}, condition: a}}\n")
    result = sigma(folder)
    assert [*conditions(result)][2] == ("x" if label else "untitled")
    assert label is None or label in result.stdout


def test_filters_narrow_the_rules_that_they_name(folder: Path) -> None:
    written(folder / "filter.yml", FILTER)
    condition = conditions(sigma(folder))["Dump"]
    assert fires(condition, Image="x\\dump.exe", Computer="other")
    assert not fires(condition, Image="x\\dump.exe", Computer="SERVER")


def test_where_no_rules_are_the_command_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty.yml").write_text("")
    result = sigma(tmp_path, status=1)
    assert (result.stdout, result.stderr) == ("", f"rule-detector: no Sigma rules are in {tmp_path}\n")


def test_a_sigma_rule_that_is_read_as_a_rules_file_is_known_for_what_it_is(folder: Path) -> None:
    [path, *_] = sorted(folder.rglob("*.yml"))
    assert run("check", path, status=1).stderr == (
        f"rule-detector: {path}: this is a Sigma rule; `rule-detector sigma` converts it\n"
    )


def test_without_the_extra_the_command_says_what_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sigma.collection", None)
    assert sigma(folder, status=1).stderr == (
        "rule-detector: pySigma is missing; "
        "in a checkout, `pip install -c constraints.txt '.[sigma]'` installs it\n"
    )
