"""The actor: rules as the interface has them, batches in order, answers that are bounded."""

import json

import pytest

from engine.evaluation.inspecting.states import StateAsked
from engine.evaluation.wire.events import Done, Refused
from engine.language.limits import Limits
from engine.runtime.contract.requests import operations as ops
from engine.runtime.detector import executor
from tests.local_runtime.owners import ONE, codes, event
from tests.unit.runtime.detector.executor.requests import add, answer, fired


def test_a_rule_is_shown_as_the_interface_has_it(actor):
    rule_id = add(actor, "once within 5m a == 1")
    expected = {
        "id": rule_id,
        "condition": {
            "once_within": {"inner": {"leaf": {"fact": "a", "op": "eq", "value": 1}}, "window_secs": 300}
        },
        "detectorId": ONE,
        "enabled": True,
        "name": "a rule",
        "notify": False,
        "priority": 1,
    }
    text = "once within 5m a == 1"
    assert answer(actor, ops.rule(rule_id)) == {**expected, "text": text, "source": text}
    assert answer(actor, ops.rules()) == {"rules": [expected]}
    assert answer(actor, ops.change_rule(rule_id)) == expected


def test_integers_of_any_size_stand_in_a_rule_as_they_were_given(actor):
    huge = "9" * 4000
    rule_id = add(actor, f"a == {huge} or b == 1.0")
    (given,) = actor.handle([ops.rule(rule_id)]).answers
    assert f'"value":{huge}}}'.encode() in given.result
    assert b'"value":1.0}' in given.result


def test_what_the_answers_of_a_reply_have_no_room_for_is_not_begun(make):
    actor = make(limits=Limits(answer_bytes_max=800))
    actor.activate(ONE, 1)
    for _ in range(4):
        add(actor)
    # Each is answered by some 500 bytes.
    batch = [event(number, a=1) for number in range(5)]
    reply = actor.handle(batch)
    assert (len(reply.answers), reply.crash) == (2, None)
    assert actor._active.detector.events_seen == 2
    assert len(actor.handle(batch[2:]).answers) == 2
    assert len(actor.handle([event(9)] * 5).answers) == 5


def test_operations_that_others_took_too_long_for_are_not_begun(actor, monkeypatch):
    monkeypatch.setattr(executor, "BATCH_S", -1.0)
    assert len(actor.handle([event(number) for number in range(5)]).answers) == 1
    assert actor._active.detector.events_seen == 1


def test_answers_that_fill_a_reply_to_the_last_byte_end_it(make):
    actor = make()
    actor.activate(ONE, 1)
    add(actor)
    size = len(actor.handle([event(0, a=1)]).answers[0].result)
    actor.discard()
    actor = make(limits=Limits(answer_bytes_max=2 * size))
    actor.activate(ONE, 2)
    assert len(actor.handle([event(number, a=1) for number in range(1, 6)]).answers) == 2


@pytest.mark.parametrize(
    "operation", [ops.rule("0" * 32), ops.change_rule("0" * 32), ops.remove_rule("none")]
)
def test_an_unknown_rule_is_1201(actor, operation):
    assert codes(actor.handle([operation]).answers[0]) == [1201]


def test_an_unknown_rule_is_judged_before_the_condition_for_it(actor):
    assert codes(actor.handle([ops.change_rule("none", condition="not a condition")]).answers[0]) == [1201]


def test_a_batch_goes_on_after_an_operation_that_is_refused(actor):
    rule_id = add(actor)
    reply = actor.handle([event(a=1), ops.evaluate(b"{"), event(2000, a=1), ops.rule("none"), ops.rules()])
    assert reply.crash is None
    assert [type(one) for one in reply.answers] == [Done, Refused, Done, Refused, Done]
    assert codes(reply.answers[1]) == [1000]
    assert [rule_id] == fired(actor, 3000, a=1)


def test_a_change_is_synced_at_once_whatever_comes_with_it(make):
    actor = make(journal_sync="interval")
    actor.activate(ONE, 1)
    assert not actor.handle([event(), ops.add_rule("r", "a == 1")]).unsynced


def test_the_whole_state_includes_the_storage_and_a_part_does_not(actor):
    added = {"journal", "snapshot", "worker"}
    assert answer(actor, ops.state(StateAsked())).keys() >= added
    assert answer(actor, ops.state(StateAsked("keys"))).keys().isdisjoint(added)


def test_the_state_tells_whether_the_journal_is_synced_and_when_a_snapshot_was_saved(make):
    actor = make(journal_sync="interval")
    actor.activate(ONE, 1)
    actor.handle([event()])
    assert answer(actor, ops.state(StateAsked()))["journal"]["synced"] is False
    assert actor.begin_saving()
    actor.finish_saving()
    after = answer(actor, ops.state(StateAsked()))
    assert (after["journal"]["synced"], after["snapshot"]["saved_ms"]) == (True, 10_000_000)


def test_a_key_repeats_the_first_answer_whether_it_is_explained_or_not(actor, make):
    add(actor)
    body = json.dumps({"event": {"fields": {"a": 1}, "timestamp_ms": 1000}}).encode()
    explained, plain = ops.evaluate(body, "key", explained=True), ops.evaluate(body, "key")
    first = answer(actor, explained)
    assert "node" in first["actions"][0]
    assert answer(actor, plain) == answer(actor, explained) == first
    other = make()
    other.activate(ONE, 2)
    assert answer(other, plain) == first
