"""Numbers that take the decoder long are found, and decoded to the last bit while others get their turn."""

import json
import struct
from time import thread_time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.evaluation.wire import bodies
from engine.evaluation.wire.batches import decode_batch
from engine.evaluation.wire.bodies import (
    COSTLY_MAX,
    HALFWAY_MAX,
    LONG_DIGITS_SUM_MAX,
    SCANNED_BYTES,
    are_costly,
    decode,
    lengths_of_integers,
)
from engine.evaluation.wire.decoding import decode_evaluate, decode_lines
from engine.language.diagnostics import Refusal
from engine.language.limits import Limits

COSTLY = [
    *("9e296", "-9E+307", "3e-320", "5e-324", "2.2250738585072014e-308", "1e23", "1.5e0300", "1e-0320"),
    *("0." + "0" * 300 + "1", "9" * 25 + ".5", "9007199254740993.00001", "0.1234567890123456789012345e-5"),
]
CHEAP = ["1", "-0.1", "1e-05", "1.5E-07", "12345678901234567", "3.141592653589793", "1e9", "1.7e-99", "0.5"]


def many(text: str, count: int = 2 * COSTLY_MAX) -> bytes:
    """Return the body of an array with a number so often that it is long enough to be searched."""
    return b"[" + b",".join([text.encode()] * count) + b" " * SCANNED_BYTES + b"]"


def bits(value: Any) -> Any:
    """Return a value with floats as their bits, so that -0.0 is not 0.0, and 1.0 is not 1."""
    match value:
        case float():
            return struct.pack("d", value)
        case list():
            return list(map(bits, value))
        case dict():
            return {name: bits(member) for name, member in value.items()}
        case _:
            return value


@pytest.mark.parametrize("text", COSTLY)
def test_many_numbers_that_take_long_are_found_and_few_do_not_matter(text: str) -> None:
    assert are_costly(many(text))
    assert not are_costly(many(text, COSTLY_MAX // 20))
    assert not are_costly(many(text)[: SCANNED_BYTES - 1])


def test_so_many_numbers_that_may_lie_between_two_doubles_that_they_take_long_are_found() -> None:
    for text in ("9007199254740993.0", "-1.2345678901234567"):
        assert not are_costly(many(text, HALFWAY_MAX))
        assert are_costly(many(text, HALFWAY_MAX + 1))
        assert not are_costly(many(text[:-1], HALFWAY_MAX + 1))


@pytest.mark.parametrize("text", CHEAP)
def test_numbers_that_measurements_have_do_not_count(text: str) -> None:
    assert not are_costly(many(text, 40_000))


@pytest.mark.parametrize("text", COSTLY)
def test_the_decoder_never_gets_a_body_of_numbers_that_take_it_long(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(bodies, "_decoder")
    number = json.loads(text)
    found = decode(many(text), list[Any])
    assert bits(found) == bits([number] * 2 * COSTLY_MAX)
    event = b'{"fields":{"x":%b},"timestamp_ms":%b}' % (many(text), b"0")
    assert bits(decode_evaluate(b'{"event":%b}' % event, Limits()).event.fields) == bits({"x": found})
    batch = b'{"events":[%b,%b]}' % (event, event)
    assert [bits(each.fields) for each in decode_batch(batch, Limits()).events] == [bits({"x": found})] * 2
    line = b'{"event":%b}' % event
    assert [bits(each.event.fields) for each in decode_lines(line + b"\n" + line, Limits())] == [
        bits({"x": found})
    ] * 2


def test_times_and_flat_fields_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(bodies, "_decoder")
    batch = b'{"events":[' + b",".join([b'{"fields":{"x":9e296},"timestamp_ms":3e-320}'] * 300) + b"]}"
    decoded = decode_batch(batch, Limits()).events
    assert bits([[each.fields["x"], each.timestamp_ms] for each in decoded]) == bits([[9e296, 3e-320]] * 300)


def test_a_number_near_the_ends_of_the_range_takes_little_longer_than_others() -> None:
    """The decoder takes more than a hundred times as long."""

    def least_s(text: str) -> float:
        body = many(text, 5_000)
        times = []
        for _ in range(7):
            begun = thread_time()
            decode(body, list[Any])
            times.append(thread_time() - begun)
        return min(times)

    assert max(least_s("9e296"), least_s("3e-320")) < 5 * least_s("9e50")


def test_what_is_wrong_is_told_as_of_other_bodies() -> None:
    for body, type_ in (
        (many("1e999"), list[Any]),
        (many("9e296") + b"]", list[Any]),
        (b'{"a":' + many("9e296") + b',"b":"\xff"}', dict[str, Any]),
        (many("9e296"), dict[str, Any]),
        (b"[" * 65 + many("9e296") + b"]" * 65, list[Any]),
        (many("9e296")[:-1] + b"," + b"9" * 4001 + b"]", list[Any]),
    ):
        with pytest.raises(Refusal) as caught:
            decode(body, type_)
        with pytest.raises(Refusal) as other:
            decode(body.replace(b"9e296", b"9    "), type_)
        assert caught.value.entries == other.value.entries


def test_of_duplicate_members_the_last_counts_among_such_numbers_too() -> None:
    body = b'{"event":1,"event":{"fields":{"x":1,"x":%b},"timestamp_ms":"a","timestamp_ms":2}}' % many(
        "9e296"
    )
    assert decode_evaluate(body, Limits()).event.timestamp_ms == 2


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers().map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.from_regex(
        r"-?[1-9](\.[0-9]{0,17}[1-9])?[eE](-(29[0-9]|3[0-2][0-9])|[+]?(2[5-9][0-9]|30[0-7]))", fullmatch=True
    ),
)


@given(st.lists(NUMBERS, min_size=1, max_size=40))
def test_every_number_is_decoded_to_the_last_bit(texts: list[str]) -> None:
    body = b"[" + ",".join(texts).encode() + b"]"
    expected = bits(json.loads(body))
    assert bits(bodies.decode_by_hand(body)) == expected
    assert bits(msgspec.json.decode(body)) == expected
    long = b"[" + b",".join([body] * (1 + SCANNED_BYTES // len(body))) + b"]"
    assert all(bits(each) == expected for each in decode(long, list[Any]))


def test_long_integers_are_exact_up_to_a_million_digits_together() -> None:
    digits = 2_000
    count = LONG_DIGITS_SUM_MAX // digits
    assert decode(many("7" * digits, count), list[Any]) == [int("7" * digits)] * count
    said = "the body holds more than 1000000 digits in integers of more than 400 digits"
    for text in ("7" * digits, "-" + "7" * digits):
        with pytest.raises(Refusal, match=said):
            decode(many(text, count + 1), list[Any])


@pytest.mark.parametrize(
    "text", ["1" * 400, "0." + "1" * 2_000, '"' + "1" * 2_000 + '"', "1" * 200 + "e-150"]
)
def test_digits_of_other_texts_do_not_count_as_those_of_long_integers(text: str) -> None:
    count = LONG_DIGITS_SUM_MAX // len(text) + 100
    assert decode(many(text, count), list[Any]) == [json.loads(text)] * count


def test_the_integers_of_a_body_are_told_from_all_else_in_it() -> None:
    body = b'{"123456":[-123456,12345,1234567.5,1e123456,"123456",true,null,1234567\t,{"a\\"":1234567}]}'
    assert lengths_of_integers(body, 5) == [6, 7, 7]
    assert lengths_of_integers(b"-123456", 5) == [6]
    assert lengths_of_integers(b"-12345", 5) == []
