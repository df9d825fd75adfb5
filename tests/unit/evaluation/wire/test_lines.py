"""Lines mean the same whether they are decoded together or each by itself."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.evaluation.wire.decoding import (
    BLANKS,
    EvaluateBody,
    EventBody,
    decode_evaluate,
    decode_event,
    decode_lines,
)
from engine.language.diagnostics import Refusal
from engine.language.limits import Limits

LIMITS = Limits(digits_max=20, body_depth_max=6, body_values_max=40)
FIRST, SECOND = (b'{"event":{"fields":{"a":%d},"timestamp_ms":%d}}' % (one, one) for one in (1, 2))
ALONE = b' { "fields":{"a":1},"timestamp_ms":1}'
MANY = b",".join(b'"%d":1' % number for number in range(100))
PIECES = (
    FIRST,
    SECOND,
    ALONE,
    b'{"timestamp_ms":9e15,"fields":{"a":[1]}}',
    b'{"fields":{},"timestamp_ms":0,"context":{}}',
    b'{"\\u0066ields":{},"timestamp_ms":0}',
    b"\n",
    b"\n\n",
    b"\r\n",
    b" ",
    b",",
    b"{",
    b"}",
    b'{"event":',
    b'{"fields":{"a":"x"},"timestamp_ms":1.5}',
    b'{"fields":{"a":[1]},"timestamp_ms":0}}',
    b'{"event":{"fields":{"a":"}\n{"},"timestamp_ms":0}}',
    b'{"event":{"fields":{"a":1,"a":null},"timestamp_ms":9e15}}',
    b'{"event":{"fields":{"a":' + b"1" * 21 + b'},"timestamp_ms":0}}',
    b'{"event":{"fields":{"a":' + b"[" * 6 + b"]" * 6 + b'},"timestamp_ms":0}}',
    b'{"event":{"fields":{"a":[' + b"1," * 40 + b'1]},"timestamp_ms":0}}',
    b'{"event":{"fields":{},"timestamp_ms":0},"context":{"vars":{"b":1}}}',
    b'{"event":{"fields":{"a":"\xff"},"timestamp_ms":0}}',
)


def told(decoded: EvaluateBody | EventBody | Refusal) -> Any:
    if isinstance(decoded, Refusal):
        return [(entry.code, entry.message.replace("the body", "the line")) for entry in decoded.entries]
    return msgspec.to_builtins(decoded)


def by_itself(line: bytes, limits: Limits = LIMITS) -> Any:
    try:
        if line.lstrip(BLANKS + b"{").startswith((b'"fields"', b'"timestamp_ms"')):
            return {"event": told(decode_event(line, limits))}
        return told(decode_evaluate(line, limits))
    except Refusal as refusal:
        return told(refusal)


@given(st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join))
@example(FIRST + b"\n" + SECOND)
@example(FIRST + b" " + SECOND + b"\n" + FIRST.replace(b'"timestamp', b'\n"timestamp'))
@example(FIRST + SECOND + b'\n{"event":\n{"fields":{"a":1},"timestamp_ms":0}}')
@example(FIRST + b" " + SECOND + b"\n" + FIRST)
@example(ALONE + b"\n" + ALONE)
@example(ALONE + b"\n" + FIRST)
@example(FIRST + b"\n" + FIRST[:-1] + b',"x":1}')
@example(FIRST + b"\n" + FIRST[:-2] + b',"x":1}}')
@example(FIRST + b"\n" + b'{"event":{"fields":{%s},"timestamp_ms":0}}' % MANY)
@example(FIRST + b"\n" + b'{"event":{"fields":{"a":%s},"timestamp_ms":0}}' % (b"1" * 21))
def test_lines_are_decoded_as_each_would_be_by_itself(body: bytes) -> None:
    expected = [by_itself(line) for line in body.split(b"\n") if line.strip(BLANKS)]
    assert [told(line) for line in decode_lines(body, LIMITS)] == expected


@pytest.mark.parametrize("depth_max", [2, 3])
def test_lines_that_nest_too_deep_are_refused_together_too(depth_max: int) -> None:
    limits = Limits(body_depth_max=depth_max)
    expected = [by_itself(line, limits) for line in (FIRST, SECOND)]
    assert [told(line) for line in decode_lines(FIRST + b"\n" + SECOND, limits)] == expected
    assert (depth_max == 3) == (expected[0] == {"event": {"fields": {"a": 1}, "timestamp_ms": 1}})


def test_an_event_alone_means_the_same_as_in_the_body_of_an_evaluation() -> None:
    assert [told(line) for line in decode_lines(ALONE + b"\n" + FIRST, LIMITS)] == [
        told(decode_evaluate(FIRST, LIMITS))
    ] * 2
    [wild] = decode_lines(b'{"fields":{},"timestamp_ms":9e15}', LIMITS)
    assert told(wild) == [
        (1001, "timestamp_ms: expected a number from -8.64e15 to 8.64e15, got 9000000000000000.0")
    ]
    [other] = decode_lines(b'{"fields":{},"timestamp_ms":0,"vars":{}}', LIMITS)
    assert told(other) == [(1001, "vars: unknown member")]
