"""`export` writes a rules file that `apply` takes, and that changes nothing."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cli.commands import run
from tests.unit.cli.fake_service import FakeService
from tests.unit.cli.rule_files.drawn import add_rules, names


@given(st.data())
def test_what_is_exported_is_applied_without_a_change(data: st.DataObject) -> None:
    service = FakeService()
    detector = service.detectors[service.create(data.draw(names, "detector"))]
    add_rules(data, detector)
    before = detector.rules()
    exported = run("export", *service.detectors, service=service).stdout
    ran = run("apply - --yes --prune", service=service, input=exported)
    assert ran.output.endswith("There is nothing to change.\n")
    assert detector.rules() == before
    second = FakeService()
    run("apply - --yes", service=second, input=exported)
    assert run("export", *second.detectors, service=second).stdout == exported or any(
        rule.draft_of for rule in before
    )


def test_sources_are_written_as_they_were(tmp_path: Path) -> None:
    service = FakeService()
    detector = service.detectors[service.create("shop")]
    detector.add_rule("commented", "a  ==  1  # why\nand b == 2", notify=True, labels={"level": 7})
    detector.add_rule("plain", "a == 1")
    assert (
        run("export shop", service=service).stdout
        == """\
detector: shop

rules:
  commented:
    labels:
      level: 7
    condition: |-
      a  ==  1  # why
      and b == 2
    notify: true

  plain: a == 1
"""
    )


def test_rules_are_asked_for_in_pages_not_one_by_one() -> None:
    service = FakeService()
    detector_id = service.create("shop")
    for number in range(20):
        service.detectors[detector_id].add_rule(f"r{number}", f"a == {number}")
    run("export shop", service=service)
    asked = [path for _, path in service.requests if "/rules" in path]
    assert asked == [f"/api/detectors/{detector_id}/rules"] * 2, "a page, and the empty one after it"


def test_rules_of_one_name_cannot_be_told_apart_in_a_file() -> None:
    service = FakeService()
    detector = service.detectors[service.create("shop")]
    for number in range(2):
        detector.add_rule("twice", f"a == {number}")
    assert "several rules are named `twice`" in run("export shop", service=service, status=1).stderr
    assert "no detector has the id or name `other`" in run("export other", service=service, status=1).stderr
