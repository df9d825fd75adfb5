"""The checker accepts what some order explains, and nothing else."""

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
from tests.linearizability.model import DetectorModel, reach
from tests.linearizability.replay import Replay, problems
from tests.linearizability.workload import CHANGING, FIXED
from tests.unit.linearizability.simulated import DEFECTS, recorded


@settings(max_examples=max(4, settings.default.max_examples // 4))
@given(seed=st.integers(0, 2**32), clients=st.integers(1, 6), unanswered=st.sampled_from((0.0, 0.03, 0.1)))
def test_the_order_of_the_journal_explains_what_was_answered(seed, clients, unanswered):
    calls, journal = recorded(seed, clients=clients, requests=40, unanswered=unanswered)
    assert problems(calls, Replay(journal)) == []


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
@pytest.mark.parametrize("unanswered", [0.0, 0.03])
def test_the_order_of_the_journal_explains_no_defect(defect, unanswered, seed, scaled):
    # Not each history shows a defect: an event without an answer may stand for a doubled one.
    for number in range(scaled(2)):
        names = (f"{seed} {number} {attempt}" for attempt in range(3))
        made = (recorded(name, defect=defect, unanswered=unanswered) for name in names)
        assert any(problems(calls, Replay(journal)) for calls, journal in made), number


# -- histories small enough to see through -----------------------------------------------------------------

RULE = Call("x", AddRule("r", parse("previous p == 1")), 0, 1, "added")
YES = (Fired((("match", "r", 1, False),), 0),)
NO = (Fired((), 0),)


def event(number, p, called_ns, returned_ns=None, answer=None, **more):
    asked = Evaluate((Sent(number, {"p": p}, 1_000 + number),), **more)
    return Call(f"c{number}", asked, called_ns, returned_ns, answer)


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


def test_what_has_no_answer_was_done_or_not():
    lost = event(1, 1, 10)
    assert told_of(lost, event(2, 2, 50, 60, YES)) == []
    assert told_of(lost, event(2, 2, 50, 60, NO), done=[DONE[0], DONE[2]]) == []
    assert told_of(lost, event(2, 2, 50, 60, NO))


def test_a_refused_event_is_explained_by_one_that_was_done_before():
    new = event(300_002, 1, 20, 30, NO)
    done = [DONE[0], Done(new.asked)]
    assert told_of(event(1, 1, 10, 40, (REFUSED,)), new, done=done) == []
    assert told_of(event(1, 1, 10, 15, (REFUSED,)), new, done=done)


def test_no_order_explains_an_internal_error():
    assert told_of(event(1, 1, 10, 20, Unexpected("1500")), done=DONE[:2])


# -- the parts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["once p == 1", "count(p == 1) >= 2", "p == 1 since p == 2", "once within 1s previous p == 1"]
)
def test_a_condition_that_looks_back_without_end_is_refused(text):
    with pytest.raises(ValueError, match=r"^"):
        reach(parse(text))


def test_the_model_of_a_long_history_keeps_a_short_one():
    calls, _ = recorded("long", clients=1, requests=150, unanswered=0.0)
    model = DetectorModel(call.asked for call in calls)
    state = model.initial
    for call in sorted(calls, key=lambda call: call.called_ns):
        state, answer = model.done(state, call.asked)
        assert answer == call.answer, call
        assert len(state.tail) <= 40
    assert state.events > 100
    assert max(reach(condition)[0] for condition in (*FIXED, *CHANGING)) == 1_500_000
