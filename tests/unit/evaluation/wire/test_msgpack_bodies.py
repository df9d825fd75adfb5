"""Bodies as msgpack: what JSON could say is taken as JSON would be, and nothing else is."""

import datetime as dt
import json
import math
import struct
import tracemalloc
from contextlib import suppress
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.evaluation.wire import msgpack_bodies
from engine.evaluation.wire.batches import decode_batch
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.decoding import BatchBody, events_in
from engine.evaluation.wire.msgpack_bodies import check_msgpack, decode_msgpack
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import DEFAULT_LIMITS, Limits


def refused(body: bytes) -> list[tuple[int, str]]:
    with pytest.raises(Refusal) as caught:
        decode_batch(body, DEFAULT_LIMITS, "msgpack")
    return [tuple(entry) for entry in caught.value.entries]


def batch(value: object) -> bytes:
    """Return a batch of one event with any value that msgpack can encode."""
    document = {"events": [{"fields": {"a": value}, "timestamp_ms": 0}]}
    return msgpack.packb(document, use_bin_type=True, datetime=True)


def named(key: bytes) -> bytes:
    """Return a batch with an object whose one member has a name, as msgpack."""
    return batch("#").replace(b"\xa1#", b"\x81" + key + b"\x01")


NOT_JSON = {
    "nothing": b"",
    "unused byte": b"\xc1",
    "trailing": batch(1) + b"\x01",
    "two": batch(1) * 2,
    "half": batch("abc")[:-1],
    "JSON": b'{"events": []}',
    "NaN": batch(math.nan),
    "infinity": batch(math.inf),
    "minus infinity": batch(-math.inf),
    "short NaN": batch("#").replace(b"\xa1#", b"\xca\x7f\xc0\x00\x00"),
    "past a double": batch("#").replace(b"\xa1#", b"\xca\x7f\x80\x00\x00"),
    "NaN in a list": batch([[1, math.nan]]),
    "NaN beside a number": batch([0.5, math.nan]),
    "NaN at the greatest depth": batch("#").replace(b"\xa1#", b"\x91" * 60 + b"\xca\x7f\xc0\x00\x00"),
    "NaN in an object": batch({"b": math.nan}),
    "NaN as a time": batch(1).replace(b"timestamp_ms\x00", b"timestamp_ms\xcb" + struct.pack(">d", math.nan)),
    "NaN in vars": msgpack.packb({"events": [], "context": {"vars": {"a": math.nan}}}),
    "binary": batch(b"a"),
    "binary in a list": batch([b""]),
    "extension": batch(msgpack.ExtType(5, b"x")),
    "timestamp": batch(dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    "broken timestamp": batch(msgpack.ExtType(5, b"xy")).replace(b"\xd5\x05", b"\xd5\xff"),
    "extension in an object": batch({"b": msgpack.ExtType(127, b"")}),
    "number as a name": named(b"\x05"),
    "nil as a name": named(b"\xc0"),
    "binary as a name": named(b"\xc4\x01a"),
    "array as a name": named(b"\x91\x01"),
    "object as a name": named(b"\x80"),
    "NaN as a name": named(b"\xcb" + struct.pack(">d", math.nan)),
    "number as an outermost name": b"\x81\x01\x01",
    "invalid UTF-8": batch("#").replace(b"#", b"\xff"),
    "UTF-8 of a surrogate": batch("###").replace(b"###", b"\xed\xa0\x80"),
    "invalid UTF-8 in a name": named(b"\xa1\xff"),
    "invalid UTF-8 in an outermost name": b"\x81\xa1\xff\x01",
    "deep": b"\x91" * 100_000,
    "deep objects": b"\x81\xa1a" * 100_000,
    "deep and whole": batch("#").replace(b"\xa1#", b"\x91" * 900 + b"\x01"),
    "an array without end": batch("#").replace(b"\xa1#", b"\xdd\xff\xff\xff\xff"),
    "arrays without end": b"\xdd\xff\xff\xff\xff" * 500,
    "an object without end": b"\xdf\xff\xff\xff\xff",
    "a string without end": b"\xdb\xff\xff\xff\xff",
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
def test_what_json_could_not_say_is_1000_and_takes_no_more_room_than_it_is_long(body: bytes) -> None:
    tracemalloc.start()
    ((code, message),) = refused(body)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert code == 1000
    assert message.startswith("the body is")
    # An array would take gigabytes if it were believed how long it is.
    assert most_bytes < 1_000_000 + 100 * len(body)


@pytest.mark.parametrize("value", [b"x", math.nan, {1: 2}, msgpack.ExtType(1, b"")])
def test_what_json_could_not_say_is_1000_even_where_the_shape_is_wrong_too(value: object) -> None:
    assert [code for code, _ in refused(msgpack.packb({"events": 5, "x": value}))] == [1000]


@pytest.mark.parametrize(
    "document",
    [
        [],
        None,
        {"events": 5},
        {"events": [5, {"fields": [], "timestamp_ms": True}, {"fields": {}, "timestamp_ms": 0, "z": {}}]},
        {"evnts": []},
        {"events": [], "context": None},
        {"events": [{"fields": {}, "timestamp_ms": 9e15}] * 2},
        {"events": [{}] * 5_000},
    ],
)
def test_a_wrong_shape_is_told_as_it_is_of_json(document: object) -> None:
    told = []
    for form, body in (("json", json.dumps(document).encode()), ("msgpack", msgpack.packb(document))):
        with pytest.raises(Refusal) as caught:
            decode_batch(body, DEFAULT_LIMITS, form)
        told.append(caught.value.entries)
    assert told[0] == told[1]
    assert told[0][0].code == 1001


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
@pytest.mark.parametrize("end", ["1", "[]", "{}"])
def test_nesting_is_bounded_as_that_of_json(opening: str, closing: str, end: str) -> None:
    each = len(closing)
    for levels in range(56 // each, 66 // each):
        value = json.loads(opening * levels + end + closing * levels)
        body = json.dumps({"events": [{"fields": {"a": value}, "timestamp_ms": 0}]}).encode()
        outcomes = []
        for form, sent in (("json", body), ("msgpack", batch(value))):
            try:
                outcomes.append(events_in(decode_batch(sent, DEFAULT_LIMITS, form)))
            except Refusal as refusal:
                outcomes.append(refusal.entries)
        assert outcomes[0] == outcomes[1], levels
        # The body, the events, the event and its fields are four; an empty object is one, a number none.
        too_deep = 4 + levels * each + (end != "1") > 64
        assert (outcomes[0] == (Entry(1000, "the body is nested more than 64 deep"),)) is too_deep


def test_a_batch_that_nests_as_little_as_one_can_is_bounded_as_well() -> None:
    for depth_max in range(1, 6):
        outcomes = []
        for form, body in (
            ("json", b'{"events":[{"fields":{"a":1},"timestamp_ms":0}]}'),
            ("msgpack", batch(1)),
        ):
            try:
                outcomes.append(events_in(decode_batch(body, Limits(body_depth_max=depth_max), form)))
            except Refusal as refusal:
                outcomes.append(refusal.entries)
        assert outcomes[0] == outcomes[1]
        assert isinstance(outcomes[0], list) == (depth_max >= 4)


def test_of_members_of_one_name_the_last_counts() -> None:
    body = batch(1).replace(b"\x81\xa6events", b"\x82\xa6events\x05\xa6events")
    assert decode_msgpack(body, BatchBody).events[0].fields == {"a": 1}


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)
EVENTS = st.fixed_dictionaries(
    {
        "fields": st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON_VALUES, max_size=5),
        "timestamp_ms": st.integers(-(10**15), 10**15) | st.floats(-1e15, 1e15),
    }
)


@given(st.lists(EVENTS, max_size=4), st.dictionaries(st.sampled_from("abc"), JSON_VALUES, max_size=2))
def test_it_is_the_document_that_it_would_be_as_json(events: list[Any], sent: dict[str, Any]) -> None:
    document = {"events": events, "context": {"vars": sent}}
    as_json = decode(json.dumps(document).encode(), BatchBody)
    for encode in (msgpack.packb, msgspec.msgpack.encode):
        assert repr(decode_msgpack(encode(document), BatchBody)) == repr(as_json)


@given(st.binary(max_size=60) | st.binary(max_size=20).map(lambda tail: batch(1)[:-15] + tail))
def test_whatever_comes_is_taken_or_refused(body: bytes) -> None:
    with suppress(Refusal):
        taken = decode_batch(body, DEFAULT_LIMITS, "msgpack")
        assert decode(msgspec.json.encode(taken), BatchBody) == taken


@given(JSON_VALUES)
def test_values_are_counted_whatever_they_are(document: Any) -> None:
    body = msgpack.packb({"x": document})

    def count(value: Any) -> int:
        match value:
            case dict():
                return 1 + sum(1 + count(member) for member in value.values())
            case list():
                return 1 + sum(map(count, value))
            case _:
                return 1

    values = count({"x": document})
    assert msgpack_bodies._are_few(body, values)
    assert not msgpack_bodies._are_few(body, values - 1)


@pytest.mark.parametrize(
    "value",
    [
        *(
            msgpack.packb(number)
            for number in (2**7, 2**8, 2**16, 2**32, -1, -(2**7), -(2**15), -(2**31), -(2**33), 0.5)
        ),
        *(msgpack.packb("x" * length) for length in (0, 31, 32, 255, 256, 65_535, 65_536)),
        *(msgpack.packb(b"x" * length) for length in (0, 255, 256, 65_536)),
        *(
            msgpack.packb(msgpack.ExtType(5, b"x" * length))
            for length in (0, 1, 2, 3, 4, 8, 16, 17, 256, 65_536)
        ),
        b"\xca" + bytes(4),
        *(first + bytes(2) for first in (b"\xdc", b"\xde")),
        *(first + bytes(4) for first in (b"\xdd", b"\xdf")),
    ],
    ids=lambda value: f"{value[0]:x} {len(value)}",
)
def test_every_kind_of_value_is_one_value(value: bytes) -> None:
    body = b"\x93" + value + b"\x00" + value
    assert msgpack_bodies._are_few(body, 4)
    assert not msgpack_bodies._are_few(body, 3)


@pytest.mark.parametrize(
    "value", [b"\x80", b"\xe0", b"\xa0", b"\x90"], ids=["objects", "numbers", "texts", "arrays"]
)
def test_the_values_of_a_body_are_bounded(value: bytes) -> None:
    body = b"\x81\xa1x\xdc" + (1_000).to_bytes(2) + value * 1_000
    check_msgpack(body, Limits(body_values_max=1_003))
    with pytest.raises(Refusal, match="the body holds more than 1002 values"):
        check_msgpack(body, Limits(body_values_max=1_002))


def test_a_batch_of_flat_events_may_hold_every_scalar() -> None:
    fields = {"a": "x", "b": None, "c": True, "d": 1 << 63, "e": 1.5}
    decoded = decode_batch(
        batch("#").replace(msgpack.packb({"a": "#"}), msgpack.packb(fields)), DEFAULT_LIMITS, "msgpack"
    )
    assert decoded.events[0].fields == fields


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "input data was truncated"),
        (batch("abc")[:-1], "input data was truncated"),
        (b"\xc1", "it holds a byte that begins no value"),
        (b"\x91" * 100_000, "it is nested too deeply"),
        (b"\x80\x01", "there is more after its value (byte 1)"),
        (batch(math.nan), "it holds NaN or an infinity"),
        (batch(b"a"), "it holds a value of the binary type"),
        (batch(msgpack.ExtType(5, b"x")), "it holds a value of the extension type"),
        (named(b"\x05"), "a member's name is no string"),
        (named(b"\x91\x01"), "a member's name is no string"),
        (named(b"\x80"), "a member's name is no string"),
        (batch("#").replace(b"#", b"\xff"), "a string is not valid UTF-8"),
    ],
)
def test_the_reason_why_a_body_is_no_msgpack_with_values_of_json_is_told(body: bytes, reason: str) -> None:
    assert refused(body) == [(1000, f"the body is not msgpack with values of JSON: {reason}")]


@pytest.mark.parametrize("name", [b"\x01", b"\xcd\x12\x34", b"\xcb" + b"\x01" * 8, b"\xff", b"\xc3"])
def test_an_object_never_grows_by_names_that_are_numbers(name: bytes) -> None:
    """A dict can take time quadratic in the number of names that a caller has computed."""
    value = b"\x91\x82" + name + b"\x01\xa1b\xa1\xff"
    # The decoder stops at the name, before the text that is no UTF-8.
    [(_, message)] = refused(batch("#").replace(b"\xa1#", value))
    assert message.endswith("a member's name is no string")


@given(JSON_VALUES)
def test_names_that_are_no_strings_are_refused_wherever_they_stand(value: Any) -> None:
    for outer in ({"a": value, 1: value}, [value, {"b": [[], {}, value, {None: 1}]}], {2: 3}, {b"a": 3}):
        with pytest.raises(Refusal, match="a member's name is no string"):
            decode_msgpack(msgpack.packb(outer), object)
