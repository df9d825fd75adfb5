"""Messages 2003 and 2004: which relations are missing, and on which texts patterns are not tried."""

import re
from typing import Any

import pytest

from engine import Detector, Limits
from engine.evaluation.kernel.needs import WARNING_BYTES_MAX
from engine.evaluation.wire.events import encode_entries
from engine.language.diagnostics import Entry

Sent = dict[str, Any] | None


def told(detector: Detector, *events: tuple[dict[str, Any], Sent]) -> list[list[Entry]]:
    """Return the messages about each event, which are the same alone and in a batch."""
    alone = [detector.submit(fields, 0, sent).messages for fields, sent in events]
    batch = detector.submit_clean([(fields, 0, sent) for fields, sent in events])
    detector.forget_lookups()
    assert batch.messages == {place: messages for place, messages in enumerate(alone) if messages}
    return alone


def with_rules(*conditions: str, **limits: int) -> Detector:
    made = Detector(limits=Limits(**limits))
    for condition in conditions:
        made.add_rule("r", condition)
    return made


def missing(*names: str) -> list[Entry]:
    return [
        Entry(2003, f"the relation `{name}` is neither stored nor sent, and holds nothing") for name in names
    ]


def test_sixteen_missing_relations_are_named_and_the_others_are_counted() -> None:
    names = [f"r{number:02}" for number in range(18)]
    detector = with_rules(*(f"{name}()" for name in reversed(names)))
    two_more = Entry(2003, "2 more relations are neither stored nor sent, and hold nothing")
    one_more = Entry(2003, "1 more relations are neither stored nor sent, and hold nothing")
    assert told(
        detector,
        ({}, None),
        ({}, {"r00": [], "other": []}),
        ({}, {"r00": [], "r17": [], "other": []}),
        ({}, dict.fromkeys(names)),
        ({}, {}),
    ) == [
        [*missing(*names[:16]), two_more],
        [*missing(*names[1:17]), one_more],
        missing(*names[1:17]),
        [],
        [*missing(*names[:16]), two_more],
    ]


def test_names_of_more_than_255_characters_are_shortened() -> None:
    detector = with_rules(
        f"{'r' * 255}()", f"{'s' * 256}()", f"{'t' * 256} matches 'a'", pattern_text_chars_max=1
    )
    said = "has 2 characters; patterns are tried on at most 1"
    assert told(detector, ({"t" * 256: "aa"}, None)) == [
        [*missing("r" * 255, "s" * 255 + "…"), Entry(2004, f"`{'t' * 255}…` {said}")]
    ]


def test_a_text_may_be_as_long_as_the_limit_says() -> None:
    detector = with_rules("t matches 'a'", "$u matches 'a'", pattern_text_chars_max=10)
    said = "has 11 characters; patterns are tried on at most 10"
    assert told(
        detector,
        ({"t": "é" * 10}, {"u": "a" * 10}),
        ({"t": "é" * 11}, None),
        ({"t": "a"}, {"u": "a" * 11}),
        ({}, {"u": "a" * 11}),
    ) == [[], [Entry(2004, f"`t` {said}")], *[[Entry(2004, f"`$u` {said}")]] * 2]


def test_each_text_that_is_too_long_is_told_whatever_the_others_are() -> None:
    detector = with_rules(*(f"{name} matches 'a'" for name in "abcd"), pattern_text_chars_max=1)
    (messages,) = told(detector, ({"a": "a", "b": "aa", "c": "a", "d": "aa"}, None))
    assert [message[:3] for _, message in messages] == ["`b`", "`d`"]


@pytest.mark.parametrize("char", ["a", "é", "€", "😀"])
def test_the_largest_pattern_is_tried_on_as_many_bytes_as_the_message_says(char: str) -> None:
    detector = with_rules("t matches '[ac].{50}b$'", pattern_work_max=5_000)
    ((_, message),) = told(detector, ({"t": "a" * 5_000}, None))[0]
    said = re.fullmatch(
        r"`t` has 5000 characters; the largest of its patterns is tried on at most (\d+) bytes", message
    )
    assert said
    bytes_max = int(said[1])
    count, rest = divmod(bytes_max, len(char.encode()))
    longest = char * count + "b" * rest
    assert [
        len(messages) for messages in told(detector, ({"t": longest}, None), ({"t": longest + "b"}, None))
    ] == [0, 1]
    assert len(told(detector, ({"t": char * (count + 1)}, None))[0]) == 1


def test_patterns_that_are_left_out_together_are_told_apart_from_those_that_are_slow() -> None:
    detector = with_rules("t matches '[ab].{8}c|x[ab]{9}'", "u matches 'a'", pattern_event_work_max=200)
    slow = "the slow ones among its patterns are not tried: together they would take too long"
    assert told(
        detector, ({"t": "a12345678c", "u": "a"}, None), ({"t": "a12345678c" * 2, "u": "a"}, None)
    ) == [
        [],
        [Entry(2004, f"`t` has 20 characters; {slow}")],
    ]
    detector = with_rules(
        "t matches '[a-c]'", "t matches '[d-f]'", pattern_text_chars_max=10, pattern_event_bytes_max=10
    )
    untried = "its patterns are not tried: together they would take too long"
    assert told(detector, ({"t": "a" * 5}, None), ({"t": "a" * 6}, None)) == [
        [],
        [Entry(2004, f"`t` has 6 characters; {untried}")],
    ]


def test_a_refused_event_of_a_batch_has_no_message_besides_its_refusal() -> None:
    detector = with_rules("r()", late_ms_max=1)
    outcomes = detector.submit_clean([({}, 5, None), ({}, 0, None), ({}, 4, None)])
    assert {place: refusal.code for place, refusal in outcomes.refused.items()} == {1: 1402}
    codes = {place: [code for code, _ in messages] for place, messages in outcomes.messages.items()}
    assert codes == {0: [2003], 2: [2001, 2003]}


def test_the_room_that_is_kept_for_a_warning_fits_the_largest_one() -> None:
    # A control character takes six bytes in JSON.
    name = "\x01" * 300
    detector = with_rules(f"`{name}`()", f"`{name}` matches '[ab].{{8}}c'", pattern_event_work_max=1)
    (messages,) = told(detector, ({name: "a" * 32_768}, None))
    assert [code for code, _ in messages] == [2003, 2004]
    largest = max(len(encode_entries([message])) for message in messages)
    assert WARNING_BYTES_MAX - 256 < largest <= WARNING_BYTES_MAX


def test_an_event_with_too_many_strings_is_told() -> None:
    said = "the event has 10001 strings; `anywhere` is false of more than 10000"
    assert told(with_rules("anywhere (it == 'a')"), ({"t": ["a"] * 10_001}, None)) == [[Entry(2004, said)]]


def test_arrays_that_are_too_long_are_told_in_the_order_of_their_names() -> None:
    detector = with_rules("some b (it == 1)", "some a (it == 1)")
    long = [0] * 10_001
    said = "has 10001 elements; `some` is false of more than 10000"
    expected = [Entry(2004, f"`a` {said}"), Entry(2004, f"`b` {said}")]
    assert told(detector, ({"b": long, "a": long}, None), ({"a": long, "b": [0]}, None)) == [
        expected,
        expected[:1],
    ]
