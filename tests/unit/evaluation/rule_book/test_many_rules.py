"""Many rules are changed as one change: it does what the same changes do one by one, or nothing."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from engine import Detector, Refusal
from engine.evaluation import rules
from engine.evaluation.rule_book.changes import many_rules
from engine.evaluation.rule_book.changes.many_rules import DEFECTS_MAX, WantedRule
from engine.language.limits import Limits
from tests.audit import audit
from tests.differential.feeding import rule_id
from tests.differential.modes import TRIED, in_mode

CONDITIONS = (
    "a == 1",
    "a in [1, 2]",
    "once within 20ms a == 1",
    "per k (count(a == 1) within 50ms >= 2)",
    "per k (count(a == 1) within 40ms < 2)",
    "historically for 10ms strong a == 2",
    "count(b == 1) since a == 2 >= 1",
    "b matches 'x[yz]'",
)
LONGER = f'x == "{"z" * 700}"'
NAMES = tuple("pqrstuvw")


def put(detector: Detector, wanted: list[WantedRule], *, prune: bool = False) -> dict[str, list[str]]:
    change = detector.rules_change(wanted, prune=prune)
    detector.change_rules(change.put, [rule.id for rule in change.removed])
    lists = {"created": change.created, "removed": change.removed, "unchanged": change.unchanged}
    return {"changed": [rule.name for _, rule in change.changed]} | {
        name: [rule.name for rule in rules] for name, rules in lists.items()
    }


def one_by_one(detector: Detector, wanted: list[WantedRule], *, prune: bool) -> None:
    there = {rule.name: rule for rule in detector.rules()}
    names = {one.name for one in wanted}
    for rule in [rule for rule in there.values() if prune and rule.name not in names]:
        detector.remove_rule(rule.id)
    for one in wanted:
        given = {"notify": one.notify, "description": one.description, "labels": one.labels}
        given |= {"condition": one.condition, "shadow": one.shadow, "history": one.history}
        if one.name in there:
            detector.change_rule(there[one.name].id, enabled=one.enabled, **given)
    for one in wanted:
        if one.name not in there:
            made = detector.add_rule(name=one.name, **given_of(one))
            if not one.enabled:
                detector.change_rule(made, enabled=False)


def given_of(one: WantedRule) -> dict[str, Any]:
    members = one._asdict()
    for member in ("name", "enabled", "draft_of", "history"):
        del members[member]
    return members


@pytest.mark.parametrize("mode", TRIED)
def test_one_change_does_what_the_same_changes_do_one_by_one(mode: str, scaled: Callable[[int], int]) -> None:
    for number in range(scaled(30)):
        draw = random.Random(f"{mode} {number}")
        numbers = [itertools.count(), itertools.count()]
        with in_mode(mode):
            both = [Detector(new_id=lambda each=each: rule_id(next(each))) for each in numbers]
            for step in range(6):
                wanted = [
                    WantedRule(
                        name,
                        draw.choice(CONDITIONS),
                        notify=draw.random() < 0.3,
                        enabled=draw.random() < 0.8,
                        shadow=draw.random() < 0.2,
                        description=draw.choice(("", "why")),
                        labels=draw.choice(({}, {"level": 1}, {"level": True})),
                        history=draw.choice((None, "keep")),
                    )
                    for name in draw.sample(NAMES, draw.randrange(len(NAMES)))
                ]
                prune = draw.random() < 0.3
                put(both[0], wanted, prune=prune)
                one_by_one(both[1], wanted, prune=prune)
                assert repr(both[0].rules()) == repr(both[1].rules())
                assert [live.births for live in both[0].live.values()] == [
                    live.births for live in both[1].live.values()
                ]
                again = put(both[0], wanted, prune=prune)
                assert again == {
                    "changed": [],
                    "created": [],
                    "removed": [],
                    "unchanged": [*again["unchanged"]],
                }
                audit(both[0])
                for event in range(5):
                    fields = {
                        "a": draw.randrange(3),
                        "b": draw.choice((1, "xy", "q")),
                        "k": draw.choice("mn"),
                    }
                    at_ms = 100 * step + 10 * event
                    fired = [detector.evaluate(fields, at_ms) for detector in both]
                    assert fired[0] == fired[1]


def defects(detector: Detector, wanted: list[WantedRule], *, prune: bool = False) -> list[tuple[int, str]]:
    before = detector.dump()
    with pytest.raises(Refusal) as refused:
        put(detector, wanted, prune=prune)
    assert detector.dump() == before
    return [(entry.code, entry.message.split("\n")[0]) for entry in refused.value.entries]


def test_all_defects_of_the_first_kind_are_listed_with_their_places() -> None:
    detector = Detector()
    for _ in range(2):
        detector.add_rule("twice", "a == 1")
    detector.add_rule("shadow", "a == 1", shadow=True)
    stored = WantedRule("shadow", "a == 1", shadow=True)
    assert defects(detector, [stored, stored]) == [(1001, "rules[1].name: rules[0] is named `shadow`, too")]
    bad = "once wihtin 5m a == 1"
    assert defects(
        detector,
        [
            WantedRule("x", bad),
            WantedRule("x", "a == 1"),
            WantedRule("twice", "a == 1"),
            WantedRule("y", "a == 1", labels={"l": "x" * 2_000}),
            WantedRule("z", "a == 1", draft_of="x"),
            WantedRule("u", "a == 1", shadow=True, draft_of="nothing"),
            WantedRule("v", "a == 1", shadow=True, draft_of="shadow"),
        ],
    ) == [
        (1001, "rules[1].name: rules[0] is named `x`, too"),
        (1001, "rules[2].name: the detector has 2 rules named `twice`"),
        (1001, "rules[3].labels.l: expected at most 1024 characters"),
        (1001, "rules[4].draftOf: only a shadow rule can be a draft; send `shadow`, too"),
        (1001, "rules[5].draftOf: no rule in the body or, alone, in the detector is named `nothing`"),
        (1001, "rules[6].draftOf: the rule `shadow` is a shadow rule itself"),
    ]
    found = defects(
        detector, [WantedRule("x", bad), WantedRule("y", "a in [1, 'x']"), WantedRule("z", "a == 1")]
    )
    assert [code for code, _ in found] == [1300, 1301]
    assert [said[:19] for _, said in found] == ["rules[0].condition:", "rules[1].condition:"]
    many = defects(detector, [WantedRule(f"r{number}", bad) for number in range(100)])
    assert len(many) == DEFECTS_MAX + 1
    assert many[-1] == (1300, "there are more defects than these")


def test_room_is_judged_by_what_there_will_be() -> None:
    detector = Detector(limits=Limits(rules_max=2, rules_bytes_max=1_000))
    put(detector, [WantedRule("a", "x == 1"), WantedRule("b", f'x == "{"y" * 500}"')])
    assert defects(detector, [WantedRule("c", "x == 1")]) == [
        (1400, "the detector would have 3 rules; limit 2")
    ]
    assert defects(detector, [WantedRule("a", LONGER)])[0][0] == 1400
    # One by one, there would be no room for the first.
    put(detector, [WantedRule("a", LONGER), WantedRule("b", "x == 1")])
    assert put(detector, [WantedRule("c", "x == 1")], prune=True) == {
        "changed": [],
        "created": ["c"],
        "removed": ["a", "b"],
        "unchanged": [],
    }


def test_a_detector_past_a_lowered_bound_can_become_smaller() -> None:
    detector = Detector()
    put(detector, [WantedRule("a", LONGER), WantedRule("b", LONGER)])
    full = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=Limits(rules_bytes_max=1_000))
    assert put(full, [WantedRule("a", "x == 1"), WantedRule("b", LONGER, notify=True)])["changed"] == [
        "a",
        "b",
    ]


MEMBERS_CHANGED = {
    "condition": "b == 2  # again",
    "notify": True,
    "enabled": False,
    "shadow": True,
    "draft_of": "other",
    "description": "why",
    "labels": {"level": 2},
    "timed": True,
    "every_secs": 5.0,
    "every_by": ["host"],
}
BESIDES: dict[str, dict[str, Any]] = {"draft_of": {"shadow": True}, "every_by": {"every_secs": 5.0}}
"""What a rule with such a member has, too."""


def test_every_member_is_compared_with_what_is_stored() -> None:
    # Of a member that is not here, a change would not be noticed either.
    assert {*MEMBERS_CHANGED} == {*WantedRule._fields} - {"name", "history"}
    for text in ("b == 2", "b  ==  2"):
        base = [WantedRule("other", "a == 1"), WantedRule("r", text, labels={"level": 1})]
        for member, value in MEMBERS_CHANGED.items():
            detector = Detector()
            put(detector, base)
            assert put(detector, base)["unchanged"] == ["other", "r"]
            changed = [base[0], base[1]._replace(**{member: value}, **BESIDES.get(member, {}))]
            assert put(detector, changed)["changed"] == ["r"], member
            assert put(detector, changed)["changed"] == []
            assert put(detector, base)["changed"] == ["r"], member


@pytest.mark.parametrize(
    "members",
    [{}, {"every_secs": 0}, {"every_secs": 2, "every_by": ["a"], "labels": {"level": 1}}],
    ids=["none", "as requests have them", "acting seldom"],
)
def test_rules_that_stay_are_neither_parsed_nor_written_nor_checked(
    members: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    detector = Detector()
    wanted = [WantedRule(f"r{number}", f"a == {number}", **members) for number in range(20)]
    put(detector, wanted)
    put(detector, wanted)
    worked: list[object] = []
    for module, function in ((rules, "parse"), (rules, "canonical"), (many_rules, "check_labels")):
        before = getattr(module, function)
        monkeypatch.setattr(
            module, function, lambda *given, before=before: worked.append(given) or before(*given)
        )
    assert len(put(detector, wanted)["unchanged"]) == 20
    assert worked == []
    wanted[3] = WantedRule("r3", "a == 77", **members)
    assert put(detector, wanted)["changed"] == ["r3"]
    assert worked, "what changes is parsed"


def test_drafts_are_named_by_their_rules_and_may_be_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector()
    rules = [WantedRule("a", "x == 1"), WantedRule("b", "x == 2")]
    drafts = [WantedRule(name, "x == 3", shadow=True, draft_of=of) for name, of in (("d", "a"), ("e", "b"))]
    put(detector, [*reversed(drafts), *rules])
    ids = {rule.name: rule.id for rule in detector.rules()}
    assert [detector.comparison(ids[name]).draft_id for name in "ab"] == [ids["d"], ids["e"]]
    put(detector, [drafts[0]._replace(draft_of="b"), drafts[1]._replace(draft_of="a")])
    assert [detector.comparison(ids[name]).draft_id for name in "ab"] == [ids["e"], ids["d"]]
    third = WantedRule("f", "x == 3", shadow=True, draft_of="a")
    assert defects(detector, [third]) == [(1400, "the rule `a` would have several drafts")]
    more = [WantedRule("c", "x == 3"), third._replace(draft_of="c")]
    with monkeypatch.context() as patched:
        patched.setattr("engine.evaluation.rule_book.changes.many_rules.DRAFTS_MAX", 2)
        assert defects(detector, more) == [(1400, "the detector would have 3 drafts; limit 2")]
    put(detector, [drafts[0]._replace(draft_of=None), *rules], prune=True)
    with pytest.raises(Refusal, match="has no draft"):
        detector.comparison(ids["a"])
    assert defects(detector, [third], prune=True) == [
        (1001, "rules[0].draftOf: no rule in the body is named `a`")
    ]
