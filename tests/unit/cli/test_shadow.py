"""`rule-detector shadow`: a draft is added, compared, promoted and removed."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from api.cli import main
from api.cli.things import shadow as command
from engine import Detector
from tests.unit.cli.fake_service import FakeService

LOGINS = "per user count(ok == false) within 1m >= 2"
DRAFT = "per user (ok == false and count(ok == false) within 1m >= 2)"


@pytest.fixture
def detector(monkeypatch: pytest.MonkeyPatch) -> Detector:
    """A detector of a service with one rule and an event."""
    service = FakeService()
    service.put_in_place(monkeypatch)
    detector = service.detectors[service.create("shop")]
    detector.add_rule("logins", LOGINS)
    event(detector, 0, "ada", ok=True)
    return detector


def event(detector: Detector, at_s: int, user: str, *, ok: bool) -> list[str]:
    return [action["name"] for action in detector.evaluate({"user": user, "ok": ok}, at_s * 1_000)]


def shadow(*arguments: str, status: int = 0) -> str:
    run = CliRunner().invoke(main, ["shadow", "logins", "--detector", "shop", "--token", "t", *arguments])
    assert run.exit_code == status, run.output
    return run.output


def test_a_draft_is_compared_promoted_and_taken_back(detector: Detector) -> None:
    assert shadow("--draft", DRAFT) == "The draft is compared with `logins` from the next event on.\n"
    fired = [event(detector, at_s, "ada", ok=ok) for at_s, ok in ((1, False), (2, False), (3, True))]
    assert fired == [[], ["logins"], ["logins"]]
    assert shadow().splitlines() == [
        "events  only the rule  only the draft  both",
        "3       1              0               1",
        'only the rule  1970-01-01T00:00:03.000Z  user=ada  {"user": "ada", "ok": true}',
        'both  1970-01-01T00:00:02.000Z  user=ada  {"user": "ada", "ok": false}',
        "Until 1970-01-01T00:01:00.000Z the draft may differ because it has seen fewer events than the rule.",
    ]
    told = json.loads(shadow("-o", "json"))
    assert (told["events"], told["only_rule"], told["examples"]["only_rule"][0]["number"]) == (3, 1, 4)
    assert "acts by its draft from now on" in shadow("--promote")
    assert event(detector, 4, "ada", ok=True) == []
    assert "3       0              1               1" not in shadow()
    assert "only the draft  1970-01-01T00:00:04.000Z" in shadow()
    shadow("--promote")
    assert event(detector, 5, "ada", ok=True) == ["logins"]
    assert shadow("--discard") == "The draft of `logins` is removed.\n"
    assert len(detector.rules()) == 1
    assert "no draft" in shadow("--discard", status=1)
    assert "no draft" in shadow(status=1)


def test_another_draft_takes_the_place_of_the_one_before(detector: Detector, tmp_path: Path) -> None:
    shadow("--draft", "once ok == false")
    assert "looks back without a window" in shadow()
    file = tmp_path / "draft"
    file.write_text("ok == false  # any")
    first = json.loads(shadow("--draft-file", str(file), "-o", "json"))["id"]
    assert [rule.id for rule in detector.rules()][1:] == [first]
    assert detector.rule(first).source == "ok == false  # any"
    assert "Until" not in shadow()


def test_differences_are_followed(detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow("--draft", "ok == false")
    event(detector, 1, "before", ok=False)
    steps = iter(
        [
            lambda: (event(detector, 2, "ada", ok=False), event(detector, 3, "ada", ok=True)),
            lambda: None,
            lambda: event(detector, 4, "bob", ok=False),
        ]
    )

    def sleep(_: float) -> Any:
        step = next(steps, None)
        if step is None:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(command.time, "sleep", sleep)
    lines = shadow("--follow", status=1).splitlines()
    assert [line.split("  ")[:3] for line in lines[:2]] == [
        ["only the draft", "1970-01-01T00:00:02.000Z", "user=ada"],
        ["only the draft", "1970-01-01T00:00:04.000Z", "user=bob"],
    ]


def test_a_long_name_leaves_room_for_what_a_draft_is_called(detector: Detector) -> None:
    [rule] = detector.rules()
    detector.change_rule(rule.id, name="n" * 255)
    run = CliRunner().invoke(
        main, ["shadow", rule.id, "--detector", "shop", "--token", "t", "--draft", "ok == true"]
    )
    assert run.exit_code == 0, run.output
    assert len(detector.rules()[1].name) == 255
    assert detector.rules()[1].name.endswith("n, draft")


def test_only_one_thing_at_a_time() -> None:
    assert "exclude each other" in shadow("--promote", "--discard", status=2)
