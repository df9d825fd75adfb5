"""`apply` makes a detector equal to rules files."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

from api.cli.applying import command
from engine import format, parse  # noqa: A004 -- the engine's name for it
from rule_detector_client import calls
from tests.unit.cli.commands import run
from tests.unit.cli.fake_service import FakeService

FILE = """
detector: shop
define:
  failed: action == "login" and ok == false
rules:
  many failures:
    condition: per ip (count(use "failed") within 5m >= 10)  # tuned in May
    labels: {severity: high}
  many failures, draft:
    condition: per ip (count(use "failed") within 5m >= 20)
    draftOf: many failures
  quiet: {condition: a == 1, enabled: false, notify: true}
"""
HIGH = (True, False, False, {"severity": "high"})


def apply(folder: Path, text: str, *arguments: object, status: int = 0) -> Result:
    (folder / "r.yaml").write_text(text, "utf-8")
    return run(f"apply {folder}/r.yaml", *arguments, status=status)


def seen(service: FakeService) -> list[Any]:
    [detector] = service.detectors.values()
    return [
        (one.name, one.source or format(one.condition), one.enabled, one.notify, one.shadow, dict(one.labels))
        for one in detector.rules()
    ]


def changes(service: FakeService) -> list[str]:
    made = [each for each in service.requests if each[0] != "GET"]
    return [f"{method} {path.split('/')[-1]}" for method, path in made]


def test_a_detector_is_created_and_a_second_time_nothing_changes(
    service: FakeService, tmp_path: Path
) -> None:
    first = apply(tmp_path, FILE, "--yes").output
    assert first == (
        "detector `shop`, which is created\n  + many failures\n  + many failures, draft\n  + quiet\n"
        "`shop`: 3 rules added\n"
    )
    failed = '(action == "login" and ok == false)'
    assert seen(service) == [
        ("many failures", f"per ip (count({failed}) within 5m >= 10)", *HIGH),
        ("many failures, draft", f"per ip (count({failed}) within 5m >= 20)", True, False, True, {}),
        ("quiet", "a == 1", False, True, False, {}),
    ]
    service.requests.clear()
    second = apply(tmp_path, FILE, "--yes").output
    assert second == "detector `shop`\n  3 rules unchanged\nThere is nothing to change.\n"
    assert changes(service) == ["PUT rules"], "only the dry run"


def test_the_difference_is_shown_and_then_made(service: FakeService, tmp_path: Path) -> None:
    apply(tmp_path, FILE, "--yes")
    [detector] = service.detectors.values()
    detector.add_rule("by hand", "b == 1")
    changed = (
        FILE.replace(">= 20", ">= 30")
        .replace("severity: high", "severity: low")
        .replace("quiet: {condition: a == 1, enabled: false, notify: true}", "new: c == 1")
    )
    before = seen(service)
    shown = apply(tmp_path, changed, "--dry-run").output
    failed = 'per ip count(action == "login" and ok == false) within 5m'
    difference = f"""\
detector `shop`
  + new
  ~ many failures: labels; its history is kept
  ~ many failures, draft: condition; its history begins anew
      - {failed} >= 20
      + {failed} >= 30
"""
    assert shown == difference + "  2 rules in no file; --prune removes them\n"
    assert seen(service) == before
    assert apply(tmp_path, changed, "--dry-run", "--prune").output == difference + "  - quiet\n  - by hand\n"
    assert apply(tmp_path, changed, "--yes", "--prune").output.endswith(
        "`shop`: 1 rule added, 2 rules changed, 2 rules removed\n"
    )
    assert [rule[0] for rule in seen(service)] == ["many failures", "many failures, draft", "new"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("{condition: a == 1}", "{condition: a == 1, enabled: false}", "enabled; its history is kept"),
        ("{condition: a == 1, enabled: false}", "a == 1", "enabled; its history begins anew"),
        (
            "a == 1",
            "{condition: a == 1, notify: true, description: x}",
            "notify, description; its history is kept",
        ),
        ("a == 1", '"a == 1  # why"', "text; its history is kept"),
        ("a == 1", "a == 2", "condition; its history begins anew"),
        ("a == 1", "{condition: a == 2, history: keep}", "condition; what both conditions remember is kept"),
        ("a == 1", "{condition: a == 1, shadow: true}", "shadow; its history is kept"),
    ],
)
def test_what_becomes_of_a_history_is_said(
    service: FakeService, tmp_path: Path, before: str, after: str, said: str
) -> None:
    apply(tmp_path, f"detector: d\nrules:\n  r: {before}\n", "--yes")
    shown = apply(tmp_path, f"detector: d\nrules:\n  r: {after}\n", "--dry-run").output
    assert f"  ~ r: {said}\n" in shown


def test_what_is_doubtful_in_a_new_detector_is_told_once_it_is_there(
    service: FakeService, tmp_path: Path
) -> None:
    text = "detector: d\nrules: {r: x > 5 and x < 3}"
    told = "rule-detector: warning: 2006 `r`: `x < 3` is never true"
    assert apply(tmp_path, text, "--dry-run").stderr == ""
    assert apply(tmp_path, text, "--yes").stderr.startswith(told)
    assert apply(tmp_path, text.replace("< 3", "< 2"), "--yes").stderr.count("2006") == 1


def test_all_histories_can_be_kept(service: FakeService, tmp_path: Path) -> None:
    apply(tmp_path, "detector: d\nrules: {r: a == 1}", "--yes")
    given = ("detector: d\nrules: {r: once b == 1 and previous a == 1}", "--keep-history")
    apply(tmp_path, "detector: d\nrules: {r: once b == 1}", "--yes")
    shown = apply(tmp_path, *given, "--dry-run")
    assert "condition; what both conditions remember is kept\n" in shown.output
    assert "      begins anew: previous a == 1\n" in shown.output
    assert shown.stderr == ""
    apply(tmp_path, *given, "--yes")
    [detector] = service.detectors.values()
    [live] = detector.live.values()
    assert [part.node for part in live.births.kept] == [parse("once b == 1")]


def test_without_a_terminal_it_needs_yes_and_on_one_it_asks(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = apply(tmp_path, FILE, status=1)
    assert "nothing was changed; give --yes" in refused.stderr
    assert service.detectors == {}
    monkeypatch.setattr(command, "is_terminal", lambda: True)
    for answer, made in (("n", 0), ("y", 1)):
        ran = run(f"apply {tmp_path}/r.yaml", input=f"{answer}\n", status=1 - made)
        assert "Change it? [y/N]" in ran.stderr
        assert len(service.detectors) == made


@pytest.mark.parametrize(
    ("meanwhile", "shown"),
    [
        ("labels", "  ~ a: labels;"),
        ("relation", "  ~ relation vip: 1 tuple added, 1 removed"),
        ("b", "  ~ b: condition"),
        ("c", ""),
        ("c, pruned", "  - c"),
    ],
)
def test_what_others_change_before_the_yes_is_shown_and_asked_about_again(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str, shown: str
) -> None:
    text = "detector: d\nrelations: {vip: [1]}\nrules: {a: {condition: a == 1, labels: {by: me}}}"
    apply(tmp_path, text, "--yes")
    [detector], [relations] = service.detectors.values(), service.relations.values()
    [rule] = detector.rules()
    asked: list[object] = []

    def confirm(*said: object, **_: object) -> None:
        asked.append(said)
        if len(asked) == 1:
            match meanwhile:
                case "labels":
                    detector.change_rule(rule.id, labels={"by": "them"})
                case "relation":
                    relations["vip"] = [[1], [3]]
                case name:
                    detector.add_rule(name[0], "c == 1")

    monkeypatch.setattr(command, "is_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", confirm)
    new = text.replace("me", "us").replace("[1]", "[1, 2]").replace("rules: {", "rules: {b: b == 1, ")
    ran = apply(tmp_path, new, *["--prune"] * meanwhile.endswith("pruned"))
    _, _, again = ran.output.partition(
        "`d` was changed by somebody else meanwhile; this is the difference now\n"
    )
    assert (len(asked), bool(again)) == (1 + bool(shown), bool(shown))
    assert shown in again
    assert "There is nothing to change" in apply(tmp_path, new).output


def test_a_detector_that_others_create_before_the_yes_is_not_created_twice(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "is_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: service.names or service.create("shop"))
    assert "this is the difference now" in apply(tmp_path, FILE).stderr
    assert len(service.names) == 1


def test_files_of_one_detector_are_applied_together(service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("detector: shop\nrules: {two: b == 1}")
    apply(tmp_path, "detector: shop\nrules: {one: a == 1}", tmp_path / "b.yaml", "--yes", "--prune")
    assert [rule[0] for rule in seen(service)] == ["one", "two"]
    (tmp_path / "b.yaml").write_text("detector: shop\nrules: {one: b == 1}")
    ran = apply(tmp_path, "detector: shop\nrules: {one: a == 1}", tmp_path / "b.yaml", "--yes", status=1)
    assert f"{tmp_path}/r.yaml and {tmp_path}/b.yaml both have a rule named `one`" in ran.stderr


def test_the_detector_is_named_by_the_file_or_the_option(service: FakeService, tmp_path: Path) -> None:
    ran = apply(tmp_path, "r: a == 1", "--yes", status=1)
    assert "r.yaml: it names no detector; add `detector: NAME`, or give --detector NAME" in ran.stderr
    apply(tmp_path, FILE, "--detector", "other", "--yes")
    assert list(service.names.values()) == ["other"]
    for _ in range(2):
        service.create("twice")
    ran = apply(tmp_path, "r: a == 1", "--detector", "twice", status=1)
    assert "2 detectors are named `twice`" in ran.stderr


@pytest.mark.parametrize("exists", [False, True])
def test_a_refused_condition_changes_nothing_and_is_told_with_its_place(
    service: FakeService, tmp_path: Path, exists: bool
) -> None:
    if exists:
        service.create("shop")
    ran = apply(tmp_path, FILE.replace("a == 1", "a == "), "--yes", status=1)
    assert (
        f"rule-detector: {tmp_path}/r.yaml: `quiet`: 1300 line 12, column 26: expected a value" in ran.stderr
    )
    assert [method for method, _ in service.requests if method not in ("GET", "PUT")] == []


@pytest.mark.parametrize(
    ("member", "why"),
    [
        ("draftOf: gone", "`a`: draftOf: no file has a rule `gone`"),
        ("every_by: [b]", "r.yaml: line 2, column 32: `a`: every_by: only a rule with `every_secs` has it"),
    ],
)
def test_what_a_new_detector_would_refuse_is_told_before(
    service: FakeService, tmp_path: Path, member: str, why: str
) -> None:
    text = f"detector: shop\nrules: {{a: {{condition: a == 1, {member}}}}}"
    assert why in apply(tmp_path, text, "--dry-run", status=1).stderr
    assert service.detectors == {}


def test_a_new_detector_whose_rules_are_refused_is_not_left(service: FakeService, tmp_path: Path) -> None:
    rules = [f"  r{n}: a == {n}\n  d{n}: {{condition: a == {n}, draftOf: r{n}}}\n" for n in range(101)]
    text = f"detector: shop\nrelations: {{r: [1]}}\nrules:\n{''.join(rules)}"
    assert "1400" in apply(tmp_path, text, "--yes", status=1).stderr
    assert service.detectors == {}


def test_unchanged_conditions_are_not_parsed(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = "".join(f"  r{n}: a == {n}\n" for n in range(100))
    text = f"detector: d\nrules:\n{rules}"
    apply(tmp_path, text, "--yes")
    parsed: list[object] = []
    monkeypatch.setattr("api.cli.rule_files.reading.parse", lambda *given: parsed.append(given))
    assert "99 rules unchanged" in apply(tmp_path, text.replace("a == 7\n", "a == 8\n"), "--yes").output
    assert parsed == []


def test_the_difference_as_json(service: FakeService, tmp_path: Path) -> None:
    shown = json.loads(apply(tmp_path, FILE, "--yes", "-o", "json").stdout)
    [detector] = shown["detectors"]
    assert (shown["applied"], detector["is_new"], len(detector["created"])) == (True, True, 3)
    again = json.loads(apply(tmp_path, FILE, "--yes", "-o", "json").stdout)
    assert (again["applied"], again["detectors"][0]["unchanged"]) == (False, 3)


@pytest.mark.parametrize(
    ("prune", "gone"), [([], ""), (["--prune"], ""), ([], ", gone: a == 9"), (["--prune"], ", gone: a == 9")]
)
def test_only_rules_that_change_are_sent_unless_others_are_removed(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prune: list[str], gone: str
) -> None:
    text = "detector: shop\nrules: {a: a == 1, b: a == 2, c: a == 3, quiet: a == 4}"
    apply(tmp_path, text.replace("}", f"{gone}}}"), "--yes")
    bodies: list[list[str]] = []
    put_rules = calls.put_rules

    def noted(detector_id: str, rules: msgspec.Raw, **how: bool) -> Any:
        bodies.append([rule["name"] for rule in json.loads(bytes(rules))])
        return put_rules(detector_id, rules, **how)

    monkeypatch.setattr(calls, "put_rules", noted)
    service.requests.clear()
    apply(tmp_path, text.replace("a == 4", "a == 5"), "--yes", *prune)
    sent = ["a", "b", "c", "quiet"] if prune and gone else ["quiet"]
    assert bodies == [["a", "b", "c", "quiet"], sent], "the dry run, and the change"
    relations = ["GET"] if prune else []
    assert [method for method, _ in service.requests] == ["GET", "PUT", *relations, "PUT"]
    there = ["a == 1", "a == 2", "a == 3", "a == 5", *(["a == 9"] if gone and not prune else [])]
    assert [condition for _, condition, *_ in seen(service)] == there


def test_labels_and_names_that_need_the_standard_encoder_are_sent_as_they_are(
    service: FakeService, tmp_path: Path
) -> None:
    text = f"detector: d\nrules: {{r: {{condition: a == 1, labels: {{n: {2**70}, é: ü}}}}}}"
    apply(tmp_path, text, "--yes")
    assert seen(service)[0][-1] == {"n": 2**70, "é": "ü"}
    assert "nothing to change" in apply(tmp_path, text, "--yes").output


def test_what_changes_in_how_a_rule_acts_is_said_and_a_zero_is_as_none(
    service: FakeService, tmp_path: Path
) -> None:
    def shown(members: str, *options: str) -> str:
        rule = f"{{condition: a == 1{members}}}"
        return apply(tmp_path, f"detector: d\nrules:\n  r: {rule}\n", *options).output

    shown("", "--yes")
    assert shown(", every_secs: 0", "--yes").endswith("There is nothing to change.\n")
    acting = ", timed: true, every_secs: 5, every_by: [host]"
    assert "  ~ r: timed, every_secs, every_by; its history is kept\n" in shown(acting, "--yes")
    assert shown(acting, "--yes").endswith("There is nothing to change.\n")
    assert "  ~ r: every_by; its history is kept\n" in shown(", timed: true, every_secs: 5", "--dry-run")
