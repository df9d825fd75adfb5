"""The answer to a batch is bounded, and nothing is evaluated that is not answered."""

import json
from typing import Any

import msgpack
import pytest

from engine import Detector, Limits
from engine.evaluation.wire import events as events_module
from engine.evaluation.wire.events import Done, evaluate_batch_body, evaluate_lines
from engine.evaluation.wire.records import Ingest, ingest
from tests.differential.modes import index_from

NAME = "n" * 200
RULES = 20


@pytest.fixture(params=[0, 1 << 62], ids=["indexed", "fused"])
def detector(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Detector:
    """Twenty rules, of which all fire where `x` is 1."""
    index_from(monkeypatch, request.param)
    made = Detector(limits=Limits(answer_bytes_max=100_000))
    for number in range(RULES):
        made.add_rule(f"{NAME} {number}", "x == 1")
    return made


def events(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"fields": fields, "timestamp_ms": number} for number in range(count)]


def results(detector: Detector, sent: list[dict[str, Any]]) -> tuple[list[Any], tuple[int, ...], int]:
    answer, refused = evaluate_batch_body(detector, json.dumps({"events": sent}).encode())
    assert isinstance(answer, Done)
    return json.loads(answer.result)["results"], refused, len(answer.result)


def test_events_past_the_bound_are_not_evaluated_and_say_so(detector: Detector) -> None:
    found, refused, size = results(detector, events(100, x=1))
    evaluated = detector.events_seen
    # Each is answered by some 6 800 bytes.
    assert 8 <= evaluated <= 14
    assert [len(one["actions"]) for one in found] == [RULES] * evaluated + [0] * (100 - evaluated)
    assert refused == tuple(range(evaluated, 100))
    said = [one["errors"] for one in found[evaluated:]]
    assert said == [said[0]] * len(said)
    assert said[0][0]["code"] == 1400
    assert "event not evaluated" in said[0][0]["message"]
    assert size - len(json.dumps(found[evaluated:])) <= detector.limits.answer_bytes_max
    assert detector.clock_us == (evaluated - 1) * 1_000
    assert detector.refused == {1400: 100 - evaluated}


def test_events_that_fire_nothing_take_no_room(detector: Detector) -> None:
    found, refused, _ = results(detector, events(1_000, x=2))
    assert (len(found), refused, detector.events_seen) == (1_000, (), 1_000)


def test_what_was_not_evaluated_can_be_sent_again_until_all_is_done(detector: Detector) -> None:
    left = events(100, x=1)
    rounds = 0
    while left:
        _, refused, _ = results(detector, left)
        left = [left[place] for place in refused]
        rounds += 1
    assert detector.events_seen == 100
    assert rounds > 5


def test_a_batch_that_takes_too_long_ends_after_a_part_and_the_rest_can_be_sent_again(
    detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "BATCH_S", -1.0)
    detector.limits = Limits()
    first = events_module.FIRST_EVENTS
    found, refused, _ = results(detector, events(first + 40, x=2))
    assert refused == tuple(range(first, first + 40))
    assert {one["errors"][0]["code"] for one in found[first:]} == {1400}
    found, refused, _ = results(detector, events(first + 40, x=2)[first:])
    assert (len(found), refused, detector.events_seen) == (40, (), first + 40)
    lines = b"\n".join([json.dumps({"event": one}).encode() for one in events(first + 40, x=2)])
    answer, refused = evaluate_lines(detector, lines)
    assert (answer.result.count(b"\n"), refused) == (first - 1, tuple(range(first, first + 40)))
    answer, refused = ingest(detector, Ingest(b'{"x":2}\n' * (first + 40)), 0)
    assert (json.loads(answer.result)["refused"], len(refused)) == (40, 40)


def test_the_first_event_is_evaluated_however_large_its_answer(detector: Detector) -> None:
    detector.limits = Limits(answer_bytes_max=1)
    found, refused, _ = results(detector, events(3, x=1))
    assert [len(one["actions"]) for one in found] == [RULES, 0, 0]
    assert (refused, detector.events_seen) == ((1, 2), 1)


def test_where_one_event_may_take_it_all_events_go_on_while_half_of_it_is_left(detector: Detector) -> None:
    detector.limits = Limits(answer_bytes_max=8_000)
    sent = [*events(50, x=2), *events(50, x=1)]
    found, refused, _ = results(detector, [one | {"timestamp_ms": 0} for one in sent])
    assert [len(one["actions"]) for one in found[49:]] == [0, RULES, *[0] * 49]
    assert refused == tuple(range(51, 100))


@pytest.mark.parametrize("change", ["rename", "remove", "disable"])
def test_the_room_that_an_event_needs_follows_the_rules(detector: Detector, change: str) -> None:
    worst = detector.rule_set.answer_bytes_worst
    assert worst >= len(detector.submit({"x": 1}, 0).actions) * (len(NAME) + 100)
    rules = detector.rules()
    for rule in rules:
        if change == "rename":
            detector.change_rule(rule.id, name="r")
        elif change == "remove":
            detector.remove_rule(rule.id)
        else:
            detector.change_rule(rule.id, enabled=False)
    assert detector.rule_set.answer_bytes_worst == (
        worst - 4 * sum(len(rule.name) - 1 for rule in rules) if change == "rename" else 0
    )


def test_no_answer_to_an_event_is_larger_than_was_foreseen() -> None:
    names = ["\U0001f600" * 255, '"\\' * 127, "\t\n" * 127, "é\u2028" * 127]
    detector = Detector(limits=Limits(pattern_text_chars_max=1, late_ms_max=10**9))
    for number, name in enumerate(names):
        detector.add_rule(name, f"`relation \x01 {number} {'é' * 300}`(x) or y == 1", notify=True)
        detector.add_rule(name, f"`text \x01 {number} {'é' * 300}` matches 'a' or y == 1")
    for number in range(30):
        detector.add_rule("r", f"r{number}(x)")
    worst = detector.rule_set.answer_bytes_worst
    fields = {f"text \x01 {number} {'é' * 300}": "aa" for number in range(4)} | {"y": 1}
    body = {"events": [{"fields": fields, "timestamp_ms": stamp} for stamp in (10**8, 0)]}
    answer, _ = evaluate_batch_body(detector, json.dumps(body).encode())
    assert isinstance(answer, Done)
    for result in json.loads(answer.result)["results"]:
        size = len(json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode())
        assert 8 * 255 < size <= worst + 1_024
        assert len(result["actions"]) == 8
        assert len(result["messages"]) >= 4 + 17


def test_the_room_for_an_action_grows_with_its_id_and_its_name() -> None:
    def room(rule_id: str, name: str) -> int:
        made = Detector()
        before = made.rule_set.answer_bytes_worst
        made.add_rule(name, "x == 1", rule_id=rule_id)
        return made.rule_set.answer_bytes_worst - before

    assert room("i" * 32, "n") - room("i" * 31, "n") == 1
    # In UTF-8 a character takes up to four bytes.
    assert room("i", "n" * 32) - room("i", "n" * 31) == 4


def test_lines_are_answered_as_far_as_there_is_room(detector: Detector) -> None:
    lines = [json.dumps({"event": event}).encode() for event in events(100, x=1)]
    lines[0] = b"{"
    done, refused = evaluate_lines(detector, b"\n".join(lines))
    found = done.result.split(b"\n")
    evaluated = detector.events_seen
    assert 5 <= evaluated == len(found) - 1 < 100
    assert refused == (0, *range(len(found), 100))
    assert len(done.result) <= detector.limits.answer_bytes_max


def test_a_large_answer_is_never_held_twice_over(detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outcomes are made as they are written, not all of them first."""
    held: list[int] = []
    real = Detector.submit_clean

    def counted(self: Detector, given: Any) -> Any:
        held.append(len(given))
        return real(self, given)

    monkeypatch.setattr(Detector, "submit_clean", counted)
    packed = msgpack.packb({"events": events(500, x=1)})
    evaluate_batch_body(detector, packed, "msgpack")
    assert sum(held) == detector.events_seen < 20
    assert max(held) * detector.rule_set.answer_bytes_worst <= detector.limits.answer_bytes_max


@pytest.mark.parametrize(("limit", "evaluated"), [(1_498, 50), (1_500, 51)])
def test_events_are_evaluated_until_half_of_a_small_answer_is_full(limit: int, evaluated: int) -> None:
    """A result without actions takes 14 bytes, and the comma after it one."""
    detector = Detector(limits=Limits(answer_bytes_max=limit))
    _, refused, _ = results(detector, events(100, x=1))
    assert refused == tuple(range(evaluated, 100))


def test_many_small_results_stay_within_the_limit() -> None:
    detector = Detector(limits=Limits(answer_bytes_max=20_000))
    found, refused, _ = results(detector, events(2_000, x=1))
    answered = found[: refused[0]]
    assert 18_000 < len(json.dumps(answered, separators=(",", ":"))) <= 20_000


def test_a_refused_event_keeps_its_number_wherever_the_batch_is_cut() -> None:
    detector = Detector(limits=Limits(answer_bytes_max=20_000, late_ms_max=0))
    sent = events(40, x=1)
    for place in (1, 17, 18, 19, 37):
        sent[place]["timestamp_ms"] = -1
    _, refused, _ = results(detector, sent)
    assert refused == (1, 17, 18, 19, 37)
