"""`rules change` with labels, `rules versions` and `rules revert`."""

import json

from tests.unit.cli.fake_service import FakeService
from tests.unit.cli.things.test_things import Run, run, service

__all__ = ["run", "service"]


def test_a_rule_is_described_changed_and_reverted(service: FakeService, run: Run) -> None:
    detector = service.detectors[service.create("shop")]
    rule_id = detector.add_rule("r", "a==1  # one")
    shop = ("--detector", "shop")
    run(
        "rules",
        "change",
        "r",
        "--description",
        "why\nso",
        "--label",
        "severity=high",
        "--label",
        "level=7",
        *shop,
    )
    assert detector.rule(rule_id).labels == {"severity": "high", "level": 7}
    assert (
        run("rules", "show", "r", *shop).stdout == "# why\n# so\n# severity: high\n# level: 7\na==1  # one\n"
    )
    run("rules", "change", "r", "--condition", "a == 2", "--no-labels", "--notify", *shop)
    lines = run("rules", "versions", "r", *shop).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["version", "3", "2", "1"]
    assert lines[1].endswith("a == 2")
    run("rules", "revert", "r", *shop)
    rule = detector.rule(rule_id)
    assert (rule.source, rule.notify, rule.labels) == ("a==1  # one", False, {"severity": "high", "level": 7})
    run("rules", "revert", "r", "--version", "1", *shop)
    rule = detector.rule(rule_id)
    assert (rule.description, rule.labels, rule.source) == ("", {}, "a==1  # one")
    listed = json.loads(run("rules", "versions", "r", *shop, "-o", "json").stdout)["versions"]
    assert [each["version"] for each in listed] == [5, 4, 3, 2, 1]


def test_how_a_rule_acts_is_changed_shown_and_reverted(service: FakeService, run: Run) -> None:
    detector = service.detectors[service.create("shop")]
    rule_id = detector.add_rule("r", "per host a == 1", every_secs=60)
    shop = ("--detector", "shop")
    assert run("rules", "show", "r", *shop).stdout == "# at most once in 60 s\nper host a == 1\n"
    run("rules", "change", "r", "--every-by", "host", "--every-by", "zone", "--timed", *shop)
    shown = run("rules", "show", "r", *shop).stdout
    assert shown == "# timed\n# at most once in 60 s for each host, zone\nper host a == 1\n"
    run("rules", "change", "r", "--every-secs", "0.5", *shop)
    assert detector.rule(rule_id).every_secs == 0.5
    _, *versions = run("rules", "versions", "r", *shop).stdout.splitlines()
    assert ["at most once in 0.5 s" in version for version in versions] == [True, False, False]
    assert ["timed" in version for version in versions] == [True, True, False]
    run("rules", "revert", "r", *shop)
    rule = detector.rule(rule_id)
    assert (rule.timed, rule.every_secs, rule.every_by) == (True, 60, ("host", "zone"))
    # What it had by default, it has by default again.
    run("rules", "revert", "r", "--version", "1", *shop)
    rule = detector.rule(rule_id)
    assert (rule.timed, rule.every_secs, rule.every_by) == (False, 60, None)
    run("rules", "change", "r", "--every-secs", "0", *shop)
    assert detector.rule(rule_id).every_secs is None


def test_a_version_that_is_not_there_is_named(service: FakeService, run: Run) -> None:
    service.detectors[service.create("shop")].add_rule("r", "a == 1")
    assert (
        "there is no version 0 of the rule; there is only 1"
        in run("rules", "revert", "r", "--detector", "shop", status=1).stderr
    )
    both = ("--label", "a=1", "--no-labels", "--detector", "shop")
    assert "exclude each other" in run("rules", "change", "r", *both, status=2).stderr
