"""`rule-detector shadow`: a draft is added, compared, promoted and removed."""

import json
from pathlib import Path
from typing import Any

import pytest

from api.cli.things import shadow as command
from engine import Detector
from engine.evaluation.inspecting.comparisons import DIFFERENCES_KEPT, Samples
from tests.unit.cli.commands import run

LOGINS = "per user count(ok == false) within 1m >= 2"
DRAFT = "per user (ok == false and count(ok == false) within 1m >= 2)"


@pytest.fixture
def detector(shop: Detector) -> Detector:
    """A detector of a service with one rule and an event."""
    shop.add_rule("logins", LOGINS)
    event(shop, 0, "ada", ok=True)
    return shop


def event(detector: Detector, at_s: int, user: str, *, ok: bool) -> list[str]:
    return [action["name"] for action in detector.evaluate({"user": user, "ok": ok}, at_s * 1_000)]


def shadow(*arguments: str, status: int = 0) -> str:
    return run("shadow logins --detector shop", *arguments, status=status).output


def test_a_draft_is_compared_promoted_and_taken_back(detector: Detector) -> None:
    assert shadow("--draft", DRAFT) == "The draft is compared with `logins` from the next event on.\n"
    fired = [event(detector, at_s, "ada", ok=ok) for at_s, ok in ((1, False), (2, False), (3, True))]
    assert fired == [[], ["logins"], ["logins"]]
    assert shadow().splitlines() == [
        "events  only the rule  only the draft  both",
        "3       1              0               1",
        'only the rule  1970-01-01T00:00:03.000Z  user=ada  {"user": "ada", "ok": true}',
        'both  1970-01-01T00:00:02.000Z  user=ada  {"user": "ada", "ok": false}',
        "Up to 1970-01-01T00:01:00.000Z they may differ because one has seen fewer events than the other.",
    ]
    told = json.loads(shadow("-o", "json"))
    assert (told["events"], told["only_rule"], told["examples"]["only_rule"][0]["number"]) == (3, 1, 4)
    assert "acts by its draft from now on" in shadow("--promote")
    assert event(detector, 4, "ada", ok=True) == []
    assert "3       0              1               1" not in shadow()
    assert "only the draft  1970-01-01T00:00:04.000Z" in shadow()
    shadow("--promote")
    assert event(detector, 5, "ada", ok=True) == ["logins"]
    assert "Aborted!" in shadow("--discard", status=1)
    assert len(detector.rules()) == len(["the rule", "its draft"])
    assert shadow("--discard", "--yes") == "The draft of `logins` is removed.\n"
    assert len(detector.rules()) == 1
    for asked in ([], ["--discard"], ["--promote"], ["--follow"]):
        assert "no draft; add one with --draft CONDITION" in shadow(*asked, status=1)


def test_a_draft_has_no_draft(detector: Detector) -> None:
    shadow("--draft", DRAFT)
    assert run("shadow 'logins, draft' --detector shop", status=1).output == (
        "rule-detector: `logins, draft` is itself a draft, that of the rule `logins`\n"
    )


def test_another_draft_takes_the_place_of_the_one_before(detector: Detector, tmp_path: Path) -> None:
    shadow("--draft", "once ok == false")
    assert "looks back without a bound" in shadow()
    file = tmp_path / "draft"
    file.write_text("ok == false  # any")
    first = json.loads(shadow("--draft-file", str(file), "-o", "json"))["id"]
    assert [rule.id for rule in detector.rules()][1:] == [first]
    assert detector.rule(first).source == "ok == false  # any"
    assert "Up to" not in shadow()


def test_differences_are_followed(detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow("--draft", "ok == false")
    event(detector, 1, "before", ok=False)
    steps = [
        lambda: (event(detector, 2, "ada", ok=False), event(detector, 3, "ada", ok=True)),
        lambda: None,
        lambda: event(detector, 4, "bob", ok=False),
    ]
    lines = followed(monkeypatch, steps)
    assert [line.split("  ")[:3] for line in lines[:2]] == [
        ["only the draft", "1970-01-01T00:00:02.000Z", "user=ada"],
        ["only the draft", "1970-01-01T00:00:04.000Z", "user=bob"],
    ]


def followed(monkeypatch: pytest.MonkeyPatch, steps: list[Any], *options: str) -> list[str]:
    """Follow the differences while the steps happen, one between two looks."""
    left = iter(steps)

    def sleep(_: float) -> Any:
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(command.time, "sleep", sleep)
    lines = shadow("--follow", *options, status=130).splitlines()
    assert not any("Abort" in line for line in lines)
    return lines


def test_a_burst_is_followed_whole_and_what_is_not_kept_is_counted(
    detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow("--draft", "ok == false")

    def burst(first_s: int, events: int) -> Any:
        return lambda: [
            detector.submit({"user": f"{n}", "ok": False}, (first_s + n) * 1_000) for n in range(events)
        ]

    lines = followed(monkeypatch, [burst(1, 300), burst(301, DIFFERENCES_KEPT + 7), burst(900, 1)])
    assert sum(line.startswith("only the draft") for line in lines) == 300 + DIFFERENCES_KEPT + 1
    [told] = [line for line in lines if "more" in line]
    assert told == "7 more, which the service counted but did not keep."


def test_it_says_that_a_comparison_began_anew(detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow("--draft", "ok == false")
    draft = detector.rules()[1].id
    steps = [
        lambda: event(detector, 1, "ada", ok=False),
        lambda: detector.change_rule(draft, condition="ok != true"),
        lambda: detector.submit({"user": "ada", "ok": 1}, 2_000),
    ]
    lines = followed(monkeypatch, steps)
    assert [line[:20] for line in lines[:3]] == [
        "only the draft  1970",
        "The comparison began",
        "only the draft  1970",
    ]


def test_with_explain_both_conditions_are_told(detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow("--draft", "ok == false")
    lines = followed(monkeypatch, [lambda: detector.submit({"user": "ada", "ok": False}, 2_000)], "--explain")
    assert lines[1:6] == [
        "  rule",
        '    false  per user count(ok == false) within 1m >= 2; slice user: "ada"',
        "      false  count(ok == false) within 1m >= 2; found 1",
        "        true   ok == false; ok: false",
        "  draft",
    ]
    assert "explains examples" in shadow("--explain", "--promote", status=2)


def test_with_explain_examples_are_told_with_the_trees_that_are_kept(detector: Detector) -> None:
    detector.sampler = Samples(detector, lambda: 0.0)
    shadow("--draft", "ok == false")
    detector.submit({"user": "ada", "ok": False}, 2_000)
    assert shadow("--explain").splitlines()[2:8] == [
        'only the draft  1970-01-01T00:00:02.000Z  user=ada  {"user": "ada", "ok": false}',
        "  rule",
        '    false  per user count(ok == false) within 1m >= 2; slice user: "ada"',
        "      false  count(ok == false) within 1m >= 2; found 1",
        "        true   ok == false; ok: false",
        "  draft",
    ]


def test_a_long_name_leaves_room_for_what_a_draft_is_called(detector: Detector) -> None:
    [rule] = detector.rules()
    detector.change_rule(rule.id, name="n" * 255)
    run(f"shadow {rule.id} --detector shop --draft 'ok == true'")
    assert len(detector.rules()[1].name) == 255
    assert detector.rules()[1].name.endswith("n, draft")


def test_only_one_thing_at_a_time() -> None:
    assert "exclude each other" in shadow("--promote", "--discard", status=2)
