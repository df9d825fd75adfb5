"""Shadow rules never act, and a draft is compared with its rule at every event."""

import json
import tracemalloc
from typing import Any

import pytest

from engine import Detector, Refusal, explain
from engine.evaluation.inspecting.comparisons import comparison_of
from engine.evaluation.kernel import stream
from engine.evaluation.rule_book.shadows import DRAFTS_MAX, EXAMPLES_EACH, EXAMPLES_MAX, lookback_us
from engine.evaluation.times import FOREVER
from engine.language.text.parser import parse

RULE, DRAFT = "1" * 32, "2" * 32
MINUTE_US = 60_000_000


def made(rule: str = "a == 1", draft: str = "a in [1, 2]", events: int = 1) -> Detector:
    """Return a detector with a rule, then this many events, then its draft."""
    detector = Detector()
    detector.add_rule("rule", rule, rule_id=RULE)
    for number in range(events):
        detector.evaluate({}, number)
    detector.add_rule("draft", draft, rule_id=DRAFT, shadow=True, draft_of=RULE)
    return detector


def fired(detector: Detector, at_ms: float = 10, **fields: Any) -> list[str]:
    return [action["ruleId"] for action in detector.evaluate(fields, at_ms)]


def counts(detector: Detector) -> list[int]:
    return list(detector.comparison(RULE).counts.values())


def test_a_shadow_rule_is_counted_and_explained_and_leaves_no_room_in_answers() -> None:
    detector = Detector()
    bytes_before = detector.rule_set.answer_bytes_worst
    shadow = detector.add_rule("shadow", "a == 1", shadow=True)
    assert detector.rule_set.answer_bytes_worst == bytes_before
    assert detector.submit({"a": 1}, 1).actions == []
    assert detector.verdicts.times_fired(1) == 1
    [explained] = explain(detector, {"a": 1}, 2).rules
    assert (explained.verdict, explained.rule.shadow) == (True, True)
    assert detector.shadows
    detector.change_rule(shadow, shadow=False)
    assert not detector.shadows.ids
    assert detector.rule_set.answer_bytes_worst > bytes_before
    assert fired(detector, a=1) == [shadow]
    detector.change_rule(shadow, shadow=True)
    assert detector.rule_set.answer_bytes_worst == bytes_before
    assert fired(detector, a=1) == []


def test_a_shadow_rule_without_a_rule_leaves_others_their_actions_and_is_stored() -> None:
    detector = Detector()
    acts, shadow = (detector.add_rule(name, "a == 1", shadow=name == "shadow") for name in ("rule", "shadow"))
    assert fired(detector, a=1) == [acts]
    assert detector.shadows.tally == {"shadow": 1, "both": 0, "only_rule": 0, "only_draft": 0}
    again = Detector.load(detector.dump(), Detector.STATE_VERSION)
    assert (again.rule(shadow).shadow, again.rule(shadow).draft_of) == (True, None)
    again.remove_rule(shadow)
    assert not again.shadows.ids


def test_the_three_numbers_and_their_examples() -> None:
    detector = made("per k once within 1m a == 1", "per j a in [1, 2]")
    fired(detector, 1, a=1, k="x", j="y", note="both")
    fired(detector, 2, a=2, k="z", j="y")
    fired(detector, 3, a=3, k="x")
    fired(detector, 4, a=3, k="z")
    comparison = detector.comparison(RULE)
    assert comparison.counts == {"both": 1, "only_rule": 1, "only_draft": 1}
    [both] = comparison.examples["both"]
    assert (both.number, both.timestamp_ms) == (2, 1)
    assert both.key == {"k": "x", "j": "y"}
    assert both.fields == {"a": 1, "k": "x", "j": "y", "note": "both"}
    assert [one.number for one in comparison.examples["only_draft"]] == [3]
    assert [one.key for one in comparison.examples["only_rule"]] == [{"k": "x", "j": None}]


def test_all_that_fires_is_counted_and_a_draft_goes_on_with_its_numbers_when_it_is_stored() -> None:
    detector = made()
    for value in (1, 1, 2):
        fired(detector, a=value)
    assert detector.shadows.tally == {"shadow": 3, "both": 2, "only_rule": 0, "only_draft": 1}
    again = Detector.load(detector.dump(), Detector.STATE_VERSION)
    assert (again.rule(DRAFT).draft_of, counts(again)) == (RULE, [2, 0, 1])
    assert again.comparison(RULE).since_event == 1


def test_a_key_from_the_context_is_in_the_example() -> None:
    detector = made(draft="per $k a == 2")
    detector.evaluate({"a": 2}, 10, {"k": "x"})
    [example] = detector.comparison(RULE).examples["only_draft"]
    assert example.key == {"$k": "x"}


def test_the_last_examples_are_kept_and_few_of_a_frequent_kind() -> None:
    detector = made()
    for number in range(EXAMPLES_MAX + 5):
        fired(detector, number, a=1)

    def numbers() -> list[int]:
        return [example.number for example in detector.comparison(RULE).examples["both"]]

    assert numbers() == list(range(7, 7 + EXAMPLES_MAX))
    for number in range(EXAMPLES_MAX + 5, 3 * EXAMPLES_EACH):
        fired(detector, number, a=1)
    assert counts(detector)[0] == 3 * EXAMPLES_EACH
    assert numbers()[-3:] == [1 + EXAMPLES_EACH, 1 + 2 * EXAMPLES_EACH, 1 + 3 * EXAMPLES_EACH]


def test_examples_stay_as_they_were_when_the_caller_changes_the_event() -> None:
    detector, fields = made(), {"a": 1, "list": [1]}
    detector.evaluate_many((fields, number, None) for number in range(3) if not fields.update(n=number))
    fields["list"].append(2)
    kept = [example.fields for example in detector.comparison(RULE).examples["both"]]
    assert kept == [{"a": 1, "list": [1], "n": number} for number in range(3)]


def test_a_different_condition_or_a_switch_begins_the_comparison_anew_and_nothing_else_does() -> None:
    detector = made()
    fired(detector, a=2)
    detector.change_rule(DRAFT, name="other")
    detector.change_rule(DRAFT, condition="a in [1, 2]  # the same")
    detector.change_rule(RULE, notify=True, shadow=False)
    assert counts(detector) == [0, 0, 1]
    detector.change_rule(RULE, condition="a == 2")
    assert counts(detector) == [0, 0, 0]
    assert detector.comparison(RULE).since_event == 2
    fired(detector, a=2)
    detector.change_rule(DRAFT, enabled=False)
    with pytest.raises(Refusal, match="is disabled; enable both") as refused:
        detector.comparison(RULE)
    assert refused.value.code == 1201
    detector.change_rule(DRAFT, enabled=True)
    assert counts(detector) == [0, 0, 0]


def test_a_promoted_draft_goes_on_with_its_history_and_so_does_the_old_condition() -> None:
    detector = made("once a == 1", "once a == 2")
    for value in (1, 2, 2):
        fired(detector, a=value)
    assert counts(detector) == [2, 1, 0]
    born = [live.birth for live in detector.live.values()]
    promoted = detector.promote(RULE)
    assert (promoted.id, promoted.name, promoted.priority) == (RULE, "rule", 1)
    assert promoted.condition == parse("once a == 2")
    assert [live.birth for live in detector.live.values()] == born[::-1] == [1, 0]
    assert counts(detector) == [2, 0, 1]
    assert fired(detector) == [RULE], "once a == 2 has seen one"
    assert detector.submit({}, 10).fired == (promoted,)
    detector.promote(RULE)
    assert detector.rule(RULE).condition == parse("once a == 1")
    assert counts(detector) == [4, 1, 0]
    assert list(detector.live) == [RULE, DRAFT]
    assert [live.birth for live in detector.live.values()] == born


def test_what_was_written_is_exchanged_too() -> None:
    detector = made("a == 1  # now", "a  == 2")
    detector.promote(RULE)
    assert (fired(detector, a=1), fired(detector, a=2)) == ([], [RULE])
    assert (detector.rule(RULE).source, detector.rule(DRAFT).source) == ("a  == 2", "a == 1  # now")


@pytest.mark.parametrize("gone", [RULE, DRAFT])
def test_what_is_left_of_a_pair_is_a_rule_like_others(gone: str) -> None:
    detector = made()
    detector.remove_rule(gone)
    [left] = detector.rules()
    assert left.draft_of is None
    assert left.shadow is (gone == RULE)
    assert detector.live[left.id].birth == (0 if gone == DRAFT else 1)
    assert not detector.shadows.comparisons
    assert fired(detector, a=1) == ([] if left.shadow else [RULE])
    if gone == DRAFT:
        detector.add_rule("another", "a == 2", shadow=True, draft_of=RULE)
        assert counts(detector) == [0, 0, 0]


def test_a_draft_that_acts_is_none_any_more() -> None:
    detector = made()
    assert detector.change_rule(DRAFT, shadow=False).draft_of is None
    assert fired(detector, a=1) == [RULE, DRAFT]
    with pytest.raises(Refusal, match="has no draft; add a shadow rule"):
        detector.comparison(RULE)


def test_what_cannot_be_a_draft_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = made()

    def refused(**given: Any) -> tuple[int, str]:
        with pytest.raises(Refusal) as refusal:
            detector.add_rule("r", "a == 1", **given)
        return refusal.value.code, str(refusal.value)

    assert refused(draft_of=RULE)[0] == 1001
    assert refused(draft_of="3" * 32, shadow=True)[0] == 1201
    assert "is a shadow rule itself" in refused(draft_of=DRAFT, shadow=True)[1]
    code, said = refused(draft_of=RULE, shadow=True)
    assert (code, DRAFT in said) == (1400, True)
    with pytest.raises(Refusal, match="there is no rule") as unknown:
        detector.promote("3" * 32)
    assert unknown.value.code == 1201
    other = detector.add_rule("other", "a == 1")
    monkeypatch.setattr("engine.evaluation.rule_book.shadows.DRAFTS_MAX", 1)
    assert DRAFTS_MAX > 1
    assert refused(draft_of=other, shadow=True)[0] == 1400
    monkeypatch.setattr("engine.evaluation.rule_book.shadows.DRAFTS_MAX", 2)
    detector.add_rule("its draft", "a == 2", shadow=True, draft_of=other)
    detector.add_rule("one without a draft", "a == 1")


@pytest.mark.parametrize(
    ("condition", "minutes"),
    [
        ("a == 1 and not b == 2", 0),
        ("once within 1m a == 1", 1),
        ("once within 1m (a == 1 and historically for 2m b == 1)", 3),
        ("per k count(a == 1) within 5m > 2 or earlier within 3m b == 1", 5),
        # Which events are in a slice depends on 2 minutes before each; the oldest pane counts whole.
        ("per k where (once within 2m a == 1) (sum(a where b == 1) within 1m > 2)", 3 + 1 / 256),
        ("avg(a where once within 1m b == 1) within 4m > 2", 5 + 4 / 256),
        ("historically for 1m strong a == 1", None),
        ("historically for 0 strong once within 2m a == 1", 2),
        ("(once within 2m a == 1) since within 3m b == 1", 5),
        ("once a == 1", None),
        ("once within 1m (a == 1 and previous b == 1)", None),
        ("distinct(a) > 3", None),
    ],
)
def test_how_far_a_condition_looks_back(condition: str, minutes: int | None) -> None:
    assert lookback_us(parse(condition)) == (None if minutes is None else minutes * MINUTE_US)


@pytest.mark.parametrize(
    ("draft", "events", "until_us"),
    [
        ("once within 1m a == 1", 3, 2_000 + MINUTE_US),
        ("once a == 1", 3, FOREVER),
        ("a == 1", 3, None),
        ("once a == 1", 0, None),
    ],
)
def test_until_when_a_draft_is_young(draft: str, events: int, until_us: int | None) -> None:
    detector = made("once a == 2", draft, events)
    assert detector.comparison(RULE).young_until_us == until_us
    document = comparison_of(detector, RULE).result.decode()
    told = {None: "", FOREVER: '"young_until_ms":null'}.get(until_us, f'"young_until_ms":{2 + 60_000}')
    assert told in document
    assert ("young" in document) is (until_us is not None)
    assert ('"since_ms":2' in document) is (events > 0)


def test_a_draft_that_is_born_with_its_rule_is_not_young() -> None:
    detector = Detector()
    detector.evaluate({}, 1)
    detector.add_rule("rule", "once a == 1", rule_id=RULE)
    detector.add_rule("draft", "once a == 2", shadow=True, draft_of=RULE)
    assert detector.comparison(RULE).young_until_us is None


def test_until_when_a_rule_is_young_that_was_changed_after_its_draft_was_made() -> None:
    detector = made("a == 2", "a == 1")
    detector.evaluate({}, 5)
    detector.change_rule(RULE, condition="once within 1m a == 2")
    assert detector.comparison(RULE).young_until_us == 5_000 + MINUTE_US


def test_a_comparison_tells_since_when_it_counts() -> None:
    detector = made(events=3)
    fired(detector, 10, a=2)
    fired(detector, 11, a=1)
    document = json.loads(comparison_of(detector, RULE).result)
    assert (document["since_event"], document["events"], document["since_ms"]) == (3, 2, 2)
    assert [[*example] for example in document["examples"]["both"]] == [
        ["number", "timestamp_ms", "key", "fields"]
    ]
    assert "since_ms" not in json.loads(comparison_of(made(events=0), RULE).result)


def test_actions_are_counted_without_the_firings_of_shadow_rules() -> None:
    detector = Detector()
    detector.add_rule("rule", "a == 1")
    detector.add_rule("other", "a >= 1")
    detector.submit({"a": 1}, 1)
    assert detector.actions == 2
    detector.add_rule("shadow", "a == 1", shadow=True)
    detector.submit({"a": 1}, 1)
    detector.submit({}, 1)
    assert detector.actions == 4
    detector.submit_clean([({"a": 1}, 2, {}), ({"a": 2}, 2, {}), ({}, 2, {})])
    assert detector.actions == 7


@pytest.mark.slow
@pytest.mark.parametrize(("always", "events", "bytes_max"), [(0, 1 << 13, 1_800_000), (32, 1 << 9, 100_000)])
def test_what_is_kept_for_rules_that_fire_together_is_bounded(
    monkeypatch: pytest.MonkeyPatch, always: int, events: int, bytes_max: int
) -> None:
    # Python itself keeps some thousand tuples for others like them.
    monkeypatch.setattr(stream, "KEPT_MAX", 1)
    detector = made()
    for number in range(13 + always):
        detector.add_rule(str(number), f"f{number} == 1")
    detector.evaluate_many([({}, 0, None)])
    tracemalloc.start()
    for bits in range(events):
        facts = {f"f{place}": 1 for place in range(13 + always) if place >= 13 or bits >> place & 1}
        detector.evaluate_many([(facts, 0, None)])
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < bytes_max
