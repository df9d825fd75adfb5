"""The checker accepts what some order explains, and nothing else."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.language.text.parser import parse
from tests.linearizability.history import (
    REFUSED,
    AddRule,
    At,
    Call,
    ChangeRule,
    Evaluate,
    Fired,
    Listed,
    ListRules,
    Position,
    RemoveRule,
    Sent,
    Unexpected,
)
from tests.linearizability.journal import Done
from tests.linearizability.minimal import minimized, told
from tests.linearizability.model import DetectorModel, reach
from tests.linearizability.replay import Replay, problems
from tests.linearizability.search import Explained, Unexplained, explain
from tests.linearizability.workload import CHANGING, FIXED
from tests.unit.linearizability.simulated import DEFECTS, history, recorded


def judged(calls):
    return explain(calls, DetectorModel(calls))


def accepted(*calls):
    found = judged(calls)
    assert isinstance(found, Explained) or found.decided
    return isinstance(found, Explained)


@settings(max_examples=max(4, settings.default.max_examples // 4))
@given(seed=st.integers(0, 2**32), clients=st.integers(1, 6), unanswered=st.sampled_from((0.0, 0.03, 0.1)))
def test_a_history_with_a_real_order_is_accepted(seed, clients, unanswered):
    calls = history(seed, clients=clients, requests=30, unanswered=unanswered)
    found = judged(calls)
    assert isinstance(found, Explained), found


def histories(name, unanswered):
    """Name few histories, one of which shows a defect: an unanswered event may stand for a doubled one."""
    return [f"{name} {attempt}" for attempt in range(3 if unanswered else 1)]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
@pytest.mark.parametrize("unanswered", [0.0, 0.03])
def test_each_defect_is_found(defect, unanswered, seed, scaled):
    for number in range(scaled(2)):
        names = histories(f"{seed} {number}", unanswered)
        found = (judged(history(name, defect=defect, unanswered=unanswered)) for name in names)
        assert any(isinstance(each, Unexplained) for each in found), number


@settings(max_examples=max(4, settings.default.max_examples // 4))
@given(seed=st.integers(0, 2**32), clients=st.integers(1, 6), unanswered=st.sampled_from((0.0, 0.03, 0.1)))
def test_the_order_of_the_journal_explains_what_was_answered(seed, clients, unanswered):
    calls, journal = recorded(seed, clients=clients, requests=40, unanswered=unanswered)
    assert problems(calls, Replay(journal)) == []


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
@pytest.mark.parametrize("unanswered", [0.0, 0.03])
def test_the_order_of_the_journal_explains_no_defect(defect, unanswered, seed, scaled):
    for number in range(scaled(2)):
        names = histories(f"{seed} {number}", unanswered)
        made = (recorded(name, defect=defect, unanswered=unanswered) for name in names)
        assert any(problems(calls, Replay(journal)) for calls, journal in made), number


def test_an_order_that_explains_a_history_respects_real_time_and_has_all_that_was_answered(seed):
    calls = history(seed, unanswered=0.03)
    found = judged(calls)
    assert isinstance(found, Explained)
    assert {call for call in calls if call.answered} <= set(found.order)
    assert len(set(found.order)) == len(found.order)
    latest_ns = 0
    for call in found.order:
        assert call.returned_ns is None or call.returned_ns >= latest_ns
        latest_ns = max(latest_ns, call.called_ns)


# -- histories small enough to see through -----------------------------------------------------------------

RULE = Call("x", AddRule("r", parse("previous p == 1")), 0, 1, "added")
YES = (Fired((("match", "r", 1, False),), 0),)
NO = (Fired((), 0),)


def event(number, p, called_ns, returned_ns=None, answer=None, **more):
    asked = Evaluate((Sent(number, {"p": p}, 1_000 + number),), **more)
    return Call(f"c{number}", asked, called_ns, returned_ns, answer)


def test_the_order_of_concurrent_events_is_free_and_that_of_others_is_not():
    one, other = event(1, 1, 10, 20, NO), event(2, 2, 15, 25, YES)
    assert accepted(RULE, one, other)
    swapped = event(2, 2, 10, 20, YES), event(3, 1, 15, 25, (Fired((), 0),))
    assert not accepted(RULE, *swapped)
    late = event(2, 1, 15, 25, NO), event(1, 2, 10, 20, (Fired(YES[0].actions, 1_000),))
    assert accepted(RULE, *late)
    assert not accepted(RULE, late[0], event(1, 2, 10, 14, (Fired(YES[0].actions, 1_000),)))


def test_what_has_no_answer_was_executed_at_any_time_after_its_call_or_never():
    lost, after = event(1, 1, 10), event(2, 0, 50, 60, YES)
    assert accepted(RULE, lost, after)
    assert accepted(RULE, lost, event(2, 0, 50, 60, NO))
    assert not accepted(RULE, event(1, 1, 70), after)


def test_a_refused_event_is_explained_by_one_that_came_before():
    old, new = event(1, 1, 10, 40, (REFUSED,)), event(300_002, 1, 20, 30, NO)
    assert accepted(RULE, old, new)
    assert not accepted(RULE, event(1, 1, 10, 15, (REFUSED,)), new)


def test_a_retry_is_answered_as_before_and_changes_nothing():
    first, count = event(1, 1, 10, key="k"), Call("c", Position(), 50, 60, At(1_001, 1))
    again = event(1, 1, 20, 30, NO, key="k")
    assert accepted(RULE, first, again, count)
    assert not accepted(RULE, first, again, Call("c", Position(), 50, 60, At(1_001, 2)))


def test_a_rule_that_is_gone_is_not_found():
    gone = Call("x", RemoveRule("r"), 10, 20, "removed")
    change = Call("y", ChangeRule("r", (("notify", True),)), 15, 25, REFUSED)
    assert accepted(RULE, gone, change)
    assert not accepted(RULE, gone, Call("y", change.asked, 2, 5, REFUSED))


def test_no_order_explains_an_internal_error():
    assert not accepted(RULE, event(1, 1, 10, 20, Unexpected("1500")))


# -- the order of the journal ------------------------------------------------------------------------


DONE = [Done(RULE.asked), Done(event(1, 1, 0).asked), Done(event(2, 2, 0).asked)]


def told_of(*calls, done=DONE):
    return problems([RULE, *calls], Replay(done))


def test_a_change_of_a_rule_that_is_lost_or_done_unasked_is_told():
    change, gone = ChangeRule("r", (("notify", True),)), RemoveRule("r")
    events = event(1, 1, 10, 20, NO), event(2, 2, 30, 40, YES)
    changed = Call("y", change, 50, 60, (Listed("r", True, True, 1),))
    assert told_of(*events) == []
    assert told_of(*events, changed, done=[*DONE, Done(change)]) == []
    assert told_of(*events, changed)
    assert told_of(*events, done=[*DONE, Done(change)])
    assert told_of(*events, Call("y", gone, 50, 60, "removed"))
    assert told_of(*events, done=[*DONE, Done(gone)])
    assert told_of(*events, Call("y", gone, 50, 60, REFUSED))


def test_a_listing_of_rules_as_they_were_before_is_told():
    change, events = ChangeRule("r", (("notify", True),)), (event(1, 1, 10, 20, NO), event(2, 2, 30, 40, YES))
    changed = Call("y", change, 50, 60, (Listed("r", True, True, 1),))
    listing = Call("z", ListRules(), 70, 80, (Listed("r", False, True, 1),))
    assert told_of(*events, changed, listing, done=[*DONE, Done(change)])
    assert told_of(*events, changed, replace(listing, called_ns=55), done=[*DONE, Done(change)]) == []


def test_an_answer_before_one_that_had_returned_is_told():
    assert told_of(event(1, 1, 10, 20, NO), event(2, 2, 15, 25, YES)) == []
    assert told_of(event(1, 1, 30, 40, NO), event(2, 2, 10, 20, YES))
    assert told_of(
        event(1, 1, 10, 20, NO), Call("z", Position(), 15, 17, At(1_002, 2)), event(2, 2, 18, 25, YES)
    )


# -- the parts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["once p == 1", "count(p == 1) >= 2", "p == 1 since p == 2", "once within 1s previous p == 1"]
)
def test_a_condition_that_looks_back_without_end_is_refused(text):
    with pytest.raises(ValueError, match=r"^"):
        reach(parse(text))


def test_the_model_of_a_long_history_keeps_a_short_one():
    calls = history("long", clients=1, requests=250, unanswered=0.0)
    model = DetectorModel(calls)
    state = model.initial
    for call in sorted(calls, key=lambda call: call.called_ns):
        state = model.step(state, call)
        assert state is not None, call
        assert len(state.tail) <= 40
    assert state.events > 180
    assert max(reach(condition)[0] for condition in (*FIXED, *CHANGING)) == 1_500_000


def test_a_violation_is_made_short(seed):
    calls = history(seed, defect=DEFECTS[0], requests=50, unanswered=0.0)
    short = minimized(calls, DetectorModel, forget_max=8)
    assert len(short) < len(calls)
    assert isinstance(judged(short), Unexplained)
    end_ns = max(call.returned_ns or 0 for call in short)
    assert all(call.called_ns <= end_ns for call in short)
    assert len(told(short, last=10).splitlines()) <= 11


def test_a_search_that_takes_too_long_is_not_an_explanation():
    calls = history(random.Random(1).random())
    found = explain(calls, DetectorModel(calls), steps_max=10)
    assert isinstance(found, Unexplained)
    assert not found.decided
