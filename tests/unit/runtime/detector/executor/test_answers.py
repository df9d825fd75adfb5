"""The actor: rules as the interface has them, batches in order, answers that are bounded."""

import json

import pytest

from engine.evaluation.wire.events import Done, Refused
from engine.evaluation.wire.inspecting.states import StateAsked
from engine.language.limits import Limits
from engine.runtime.contract.requests import operations as ops
from tests.unit.runtime.detector.executor.requests import ONE, add, answer, codes, event, fired


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


def test_the_answer_to_a_batch_is_bounded_and_what_it_has_no_room_for_can_be_sent_again(make, tmp_path):
    actor = make(limits=Limits(answer_bytes_max=60_000))
    actor.activate(ONE, 1)
    for number in range(20):
        answer(actor, ops.add_rule(f"{number} " + "n" * 200, "once a == 1"))
    left = [{"fields": {"a": 1}, "timestamp_ms": number} for number in range(100)]
    keyed = ops.evaluate_batch(json.dumps({"events": left}).encode(), "a key")
    (given,) = actor.handle([keyed]).answers
    assert len(given.result) < 60_000 + 100 * 250
    # A repeat is answered as before, and evaluates nothing more.
    assert actor.handle([keyed]).answers == [given]
    seen = 0
    for _ in range(100):
        results = answer(
            actor, ops.evaluate_batch(json.dumps({"events": left}).encode(), "a key" * (not seen))
        )
        again = []
        for one, result in zip(left, results["results"], strict=True):
            if "errors" in result:
                assert result["errors"][0]["code"] == 1400
                again.append(one)
            else:
                assert len(result["actions"]) == 20
                seen += 1
        left = again
        if not left:
            break
    assert seen == 100
    actor.discard()
    # What was refused is not in the journal's history.
    other = make(limits=Limits(answer_bytes_max=60_000))
    other.activate(ONE, 2)
    assert other._active.detector.events_seen == 100


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


def test_answers_that_fill_a_reply_to_the_last_byte_end_it(make):
    actor = make()
    actor.activate(ONE, 1)
    add(actor)
    size = len(actor.handle([event(0, a=1)]).answers[0].result)
    actor.discard()
    actor = make(limits=Limits(answer_bytes_max=2 * size))
    actor.activate(ONE, 2)
    assert len(actor.handle([event(number, a=1) for number in range(1, 6)]).answers) == 2


def test_a_rule_is_changed_and_removed(actor):
    rule_id = add(actor)
    changed = answer(
        actor, ops.change_rule(rule_id, name="new", condition="a == 2", notify=True, enabled=False)
    )
    assert (changed["name"], changed["notify"], changed["enabled"]) == ("new", True, False)
    assert changed["condition"] == {"leaf": {"fact": "a", "op": "eq", "value": 2}}
    assert answer(actor, ops.remove_rule(rule_id)) == {"id": rule_id}
    assert answer(actor, ops.rules()) == {"rules": []}


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


def test_a_batch_is_carried_out_in_order(actor):
    add(actor, "once a == 1")
    reply = actor.handle([event(1000, a=2), event(2000, a=1), event(3000, a=2)])
    assert [len(json.loads(one.result)["actions"]) for one in reply.answers] == [0, 1, 1]


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


@pytest.mark.parametrize("of", [ops.evaluate_batch, ops.evaluate_lines])
def test_where_all_events_are_refused_nothing_is_written(actor, of):
    before = actor.handle([event(9_000_000)]).journal_bytes
    late = {"fields": {}, "timestamp_ms": 1}
    body = {"event": late} if of is ops.evaluate_lines else {"events": [late]}
    reply = actor.handle([of(json.dumps(body).encode())])
    assert b'"errors"' in reply.answers[0].result
    assert reply.journal_bytes == before


def test_a_draft_is_shown_with_its_rule(actor):
    rule_id = add(actor)
    draft = answer(actor, ops.add_rule("d", "a == 2", shadow=True, draft_of=rule_id))
    shown = answer(actor, ops.rule(draft["id"]))
    assert (shown["shadow"], shown["draftOf"]) == (True, rule_id)
    assert "draftOf" not in answer(actor, ops.rule(rule_id))


def test_an_event_too_far_ahead_of_the_clock_is_refused(actor):
    assert codes(actor.handle([event(10_060_001)]).answers[0]) == [1402]
    assert fired(actor, 10_060_000) == []
