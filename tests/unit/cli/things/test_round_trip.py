"""`rules list -o json` is a file of rules: `check` and `rules add` read it back."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cli.rule_files.reading import RuleFileError, conditions_of
from engine import Refusal
from engine.evaluation.rules import Rule
from engine.language.condition import Condition, Scalar
from tests.unit.cli.commands import run
from tests.unit.cli.fake_service import FakeService
from tests.unit.cli.rule_files.test_writing import names, scalars, texts
from tests.worlds.conditions import conditions


class Wanted(NamedTuple):
    """One rule of a detector. A draft is one of an earlier rule."""

    name: str
    condition: Condition
    notify: bool
    enabled: bool
    shadow: bool
    draft_of: int | None
    description: str
    labels: dict[str, Scalar]
    timed: bool
    every: tuple[float, list[str] | None]


rules = st.lists(
    st.builds(
        Wanted,
        names,
        conditions,
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.none() | st.integers(0, 5),
        texts,
        st.dictionaries(texts.filter(lambda name: 0 < len(name) <= 64), scalars, max_size=3),
        st.booleans(),
        st.just((0, None))
        | st.tuples(
            st.integers(1, 600) | st.floats(1e-6, 1e9),
            st.none() | st.lists(names.filter("$".__ne__), max_size=3),
        ),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda rule: rule.name,
)


def made(service: FakeService, wanted: Sequence[Wanted]) -> str:
    """Make a detector with these rules, or those of them that it takes."""
    detector_id = service.create("first")
    detector, ids = service.detectors[detector_id], list[str]()
    for one in wanted:
        of = ids[one.draft_of] if one.draft_of is not None and one.draft_of < len(ids) else None
        try:
            rule_id = detector.add_rule(
                one.name,
                one.condition,
                one.notify,
                shadow=one.shadow or of is not None,
                draft_of=of,
                description=one.description,
                labels=one.labels,
                timed=one.timed,
                every_secs=one.every[0],
                every_by=one.every[1],
            )
        except Refusal:
            continue
        ids.append(rule_id)
        if not one.enabled:
            detector.change_rule(rule_id, enabled=False)
    return detector_id


def members(rule: Rule) -> tuple[Any, ...]:
    how = (rule.notify, rule.enabled, rule.shadow)
    every = (rule.every_secs, rule.every_by)
    return rule.name, rule.condition, *how, rule.description, rule.labels, rule.timed, every


def seen(service: FakeService, detector_id: str) -> list[Any]:
    """The rules without what the service gives them."""
    found = service.detectors[detector_id].rules()
    named = {rule.id: rule.name for rule in found}
    return [(*members(one), named.get(one.draft_of or "")) for one in found]


@given(rules)
def test_what_is_listed_is_checked_and_added_again(wanted: list[Wanted]) -> None:
    service = FakeService()
    first = made(service, wanted)
    listed = run(f"rules list --detector {first} -o json", service=service).stdout
    found = seen(service, first)
    checked = run("check", input=listed, status=0 if found else 1)
    assert checked.stdout.count("\n  json  ") == len(found)
    second = service.create("second")
    for _ in range(2):
        run(f"rules add - --detector {second}", service=service, input=listed)
        assert seen(service, second) == found


def test_files_of_any_name_are_read_so(tmp_path: Path) -> None:
    service = FakeService()
    first, second = service.create("first"), service.create("second")
    service.detectors[first].add_rule("one", "a == 1", notify=True)
    listed = run(f"rules list --detector {first} -o json", service=service).stdout
    for name in ("rules.json", "rules.yaml", "rules"):
        path = tmp_path / name
        path.write_text(listed, "utf-8")
        assert run(f"check {path}").stdout.startswith("one:\n  text  a == 1\n")
        run(f"rules add {path} --detector {second}", service=service)
    assert seen(service, second) == seen(service, first)


def test_an_enabled_rule_is_not_one_that_is_there_disabled() -> None:
    service = FakeService()
    detector = service.create("d")
    rule_id = service.detectors[detector].add_rule("r", "a == 1")
    file = json.dumps({"r": {"condition": "a == 1", "enabled": False}})
    refused = run(f"rules add - --detector {detector}", service=service, input=file, status=1)
    assert "has a rule `r` with another `enabled`" in refused.stderr
    service.detectors[detector].change_rule(rule_id, enabled=False)
    run(f"rules add - --detector {detector}", service=service, input=file)


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (
            [
                {"name": "r", "condition": "a"},
                {"name": "s", "condition": "a"},
                {"name": "r", "condition": "b"},
            ],
            "rules: number 1 and number 3 are both named `r`",
        ),
        ([{"condition": "a == 1"}], "rules: number 1 has no `name`"),
        (["a == 1"], "rules: number 1 has no `name`"),
        (
            [{"name": "r", "condition": "a == 1", "notfy": True}],
            "line 1, column 49: `r`: notfy: unknown member; did you mean `notify`?",
        ),
        (
            [{"name": "r", "condition": "a == 1", "enabled": 1}],
            "`r`: enabled: expected a boolean, got a number",
        ),
    ],
)
def test_a_list_that_is_none_of_a_service_is_refused(listed: list[Any], said: str) -> None:
    with pytest.raises(RuleFileError) as refusal:
        conditions_of(json.dumps({"rules": listed}), "r.json")
    assert said in str(refusal.value)


def test_a_file_beside_a_condition_is_wrong_usage(tmp_path: Path) -> None:
    service = FakeService()
    detector = service.create("d")
    there = tmp_path / "rules"
    there.write_text("r: a == 1\n")
    for file in ("rules.yaml", "Rules.YML", "nowhere.json", str(there)):
        refused = run("rules add", file, "x == 1", "--detector", detector, service=service, status=2)
        assert f"`{file}` is a file of rules: give it alone" in refused.stderr.replace("\n", "")
    assert seen(service, detector) == []
