"""A long batch is decoded in portions, and nobody can tell from its answer."""

import gc
import json
from collections.abc import Callable
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Detector
from engine.evaluation.wire import batches, bodies, decoding, events
from engine.evaluation.wire.batches import decode_batch
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.decoding import decode_evaluate, decode_lines
from engine.evaluation.wire.events import Done, Refused, evaluate_batch_body, evaluate_lines
from engine.evaluation.wire.records import Ingest, ingest
from engine.language.diagnostics import Refusal
from engine.language.limits import Limits

LIMITS = Limits(body_depth_max=7, digits_max=20)
PACK = {"json": lambda document: json.dumps(document).encode(), "msgpack": msgpack.packb}
MORE = "body: it has more defects than these"
HEAVY = "holds more than {} values, where a member of an object counts as 5"


def short(monkeypatch: pytest.MonkeyPatch, whole: int = 40, portion: int = 30) -> None:
    """Have bodies of some bytes be long."""
    monkeypatch.setattr(batches, "AT_ONCE_BYTES_MAX", whole)
    for module in (batches, decoding):
        monkeypatch.setattr(module, "PORTION_BYTES", portion)


def told_of(part: Any) -> Any:
    match part:
        case Refusal(entries=entries):
            return entries
        case msgspec.UNSET:
            return None
        case _:
            return msgspec.to_builtins(part)


def told(body: bytes, form: Any, limits: Limits = LIMITS) -> Any:
    """Return the events and the context of a batch, or the entries of its refusal."""
    try:
        decoded = decode_batch(body, limits, form)
    except Refusal as refusal:
        return list(refusal.entries)
    return [(event.fields, event.timestamp_ms) for event in decoded.events], told_of(decoded.context)


VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**22)
    | st.floats(-9, 9)
    | st.text("a[]{}\\\"',é", max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab,{", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.dictionaries(st.text("ab.", min_size=1, max_size=3), VALUE, max_size=4)
EVENT = st.one_of(
    st.fixed_dictionaries({"fields": FIELDS, "timestamp_ms": st.integers(0, 9) | st.just(9e15)}),
    st.fixed_dictionaries({"fields": FIELDS}, optional={"timestamp_ms": VALUE, "z": VALUE}),
    st.integers(0, 3),
)
BATCH = st.fixed_dictionaries(
    {"events": st.lists(EVENT, max_size=50)},
    optional={"context": st.fixed_dictionaries({"vars": FIELDS}) | VALUE},
)


@pytest.mark.parametrize("form", ["json", "msgpack"])
@given(document=BATCH, portion=st.sampled_from([1, 30, 200]))
def test_a_batch_in_portions_is_what_it_is_as_a_whole(form: Any, document: Any, portion: int) -> None:
    if form == "msgpack":
        document = json.loads(json.dumps(document), parse_int=lambda text: int(text) % 2**63)
    body = PACK[form](document)
    whole = told(body, form)
    with pytest.MonkeyPatch.context() as patch:
        short(patch, portion, portion)
        parted = told(body, form)
    # What is no JSON comes first in both; several kinds of it may come in another order.
    if isinstance(whole, list) and whole[0].code == 1000:
        assert [entry.code for entry in parted] == [1000]
    elif isinstance(whole, list):
        assert set(parted) == set(whole) or parted[-1].message == whole[-1].message == MORE
    else:
        assert parted == whole


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize(
    "document",
    [
        [],
        5,
        {},
        {"events": 5},
        {"events": {}},
        {"events": "x"},
        {"events": None},
        {"events": True},
        {"events": [], "contxt": {}},
        {"context": {}},
        {"events": [{}], "context": {"vars": []}},
    ],
)
def test_what_is_no_batch_is_refused_as_ever(
    form: Any, document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = PACK[form](document)
    whole = told(body, form)
    short(monkeypatch, 0, 1)
    assert isinstance(whole, list)
    assert sorted(told(body, form)) == sorted(whole)


@pytest.mark.parametrize(
    "body",
    [
        b'{"events":1,"events":[{"fields":{},"timestamp_ms":1}],"context":5,"context":{"vars":{"a":1}}}',
        b'{"x":1',
        b'{"events":[{"fields":{"a":"\xff"},"timestamp_ms":1}]}',
        b'{"events":[{"fields":{"a":"b"},"timestamp_ms":"x"},{"fields":{"a":1e999},"timestamp_ms":1}]}',
        b'{"events":[],}',
        b'{"events":[' + b"[" * 2_000 + b"]" * 2_000 + b"]}",
        b'{"events":[] } x',
    ],
)
def test_what_is_no_json_is_told_as_of_a_short_body(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = told(body, "json")
    short(monkeypatch)
    assert told(body, "json") == whole


def test_msgpack_that_is_broken_is_told_as_of_a_short_body(monkeypatch: pytest.MonkeyPatch) -> None:
    event = msgpack.packb({"fields": {"a": 1}, "timestamp_ms": 1})
    bodies = [
        msgpack.packb({"events": [{"fields": {"a": b"binary" * 9}, "timestamp_ms": 1}]}),
        msgpack.packb({"events": b"binary" * 9}),
        b"\x81\xa6events\x92" + event + b"\xc1" + b" " * 40,
        b"\x81\xa6events\x92" + event + event.replace(b"fields", b"fi\xffeld"[:6]),
        b"\x82\xa6events\x91" + event + b"\x01\x02" + b"",
    ]
    whole = [told(body, "msgpack") for body in bodies]
    short(monkeypatch)
    assert [told(body, "msgpack") for body in bodies] == whole
    assert all(isinstance(one, list) for one in whole)


def test_no_more_than_32_defects_are_told_of_all_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (31, 32, 33, 100):
        body = PACK["json"]({"events": [{"fields": {}, "timestamp_ms": "x"}] * count})
        whole = told(body, "json")
        with monkeypatch.context() as patch:
            short(patch)
            assert told(body, "json") == whole


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_no_call_of_the_decoder_gets_much_of_a_long_batch(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, turns = [], []
    decoding = batches._FORMS[form]
    counting = decoding._replace(
        batch=lambda body, limits: sizes.append(len(body)) or decoding.batch(body, limits)
    )
    monkeypatch.setitem(batches._FORMS, form, counting)
    small = {"fields": {"a": 1}, "timestamp_ms": 1}
    large = {"fields": {"a": "x" * 200_000}, "timestamp_ms": 1}
    batch = [small] * 9_000 + [large] * 5 + [small] * 100
    body = PACK[form]({"events": batch})
    decoded = decode_batch(body, Limits(), form, lambda: turns.append(len(sizes)))
    assert [event.fields for event in decoded.events] == [event["fields"] for event in batch]
    assert max(sizes) <= batches.AT_ONCE_BYTES_MAX
    assert turns[0] == 1
    assert turns[-1] == len(sizes) <= len(turns)
    assert len(body) // batches.AT_ONCE_BYTES_MAX < len(sizes) < 40


def test_lines_are_decoded_in_portions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"event":{"fields":{"a":1},"timestamp_ms":1}}'
    body = b"\n".join(
        [line, b"", line, b"{", line * 2, b'{"event":{"fields":{"a":[[1]]},"timestamp_ms":2}}'] * 9
    )
    whole = decode_lines(body, LIMITS)
    turns: list[int] = []
    short(monkeypatch)
    parted = decode_lines(body, LIMITS, lambda: turns.append(1))
    assert len(turns) > 10
    assert [*map(told_of, parted)] == [*map(told_of, whole)]


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_the_values_of_an_event_and_of_the_context_are_bounded(form: Any) -> None:
    """An object of two members, their names short, counts 11 with itself."""

    def sent(fields: Any, sent: Any) -> bytes:
        event = {"fields": fields, "timestamp_ms": 0}
        return PACK[form]({"events": [{"fields": {}, "timestamp_ms": 0}, event], "context": {"vars": sent}})

    # The event itself counts 16 more: three members and its object.
    fields, weight = {"a": [1] * 50, "b": {"c": 1}}, 16 + 5 + 50 + 5 + 5 - 5
    assert decode_batch(sent(fields, {}), Limits(event_values_max=weight), form).events[1].fields == fields
    with pytest.raises(Refusal, match=r"events\[1\]: it " + HEAVY.format(weight - 1)) as caught:
        decode_batch(sent(fields, {}), Limits(event_values_max=weight - 1), form)
    assert [entry.code for entry in caught.value.entries] == [1000]
    with pytest.raises(Refusal, match="context: it " + HEAVY.format(30)):
        decode_batch(sent({}, {"v": [1] * 60}), Limits(event_values_max=30), form)


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_the_values_of_a_long_batch_are_bounded_together(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    body = PACK[form]({"events": [{"fields": {"a": [1, 2, 3]}, "timestamp_ms": 0}] * 20})
    short(monkeypatch)
    # In msgpack, the names of members count, too.
    count = 2 + 7 * 20 if form == "json" else 3 + 10 * 20
    assert len(decode_batch(body, Limits(body_values_max=count), form).events) == 20
    with pytest.raises(Refusal, match=f"the body holds more than {count - 1} values"):
        decode_batch(body, Limits(body_values_max=count - 1), form)


def test_the_values_of_other_bodies_are_bounded() -> None:
    body = b'{"event":{"fields":{"text":"a:b,c","a":[[],{}]},"timestamp_ms":0}}'
    # Five members and three objects or arrays hold two elements.
    assert decode_evaluate(body, Limits(event_values_max=28)).event.fields["a"] == [[], {}]
    said = "the body " + HEAVY.format(27)
    for taking in (
        lambda limits: decode_evaluate(body, limits),
        lambda limits: decode(body, dict[str, Any], limits),
    ):
        with pytest.raises(Refusal, match=said):
            taking(Limits(event_values_max=27))
    (_, refused) = decode_lines(
        b'{"event":{"fields":{},"timestamp_ms":0}}\n' + body, Limits(event_values_max=27)
    )
    assert isinstance(refused, Refusal)
    assert refused.entries[0].message == "the line " + HEAVY.format(27)


def test_a_batch_of_which_each_event_is_within_the_bound_is_taken() -> None:
    event = {"fields": {str(number): number for number in range(400)}, "timestamp_ms": 0}
    for form in ("json", "msgpack"):
        body = PACK[form]({"events": [event] * 100})
        assert len(decode_batch(body, Limits(event_values_max=2_100), form).events) == 100


@pytest.mark.parametrize("piece", range(1, 5))
@given(document=VALUE, ascii_only=st.booleans())
def test_strings_are_left_out_wherever_a_piece_ends(piece: int, document: Any, ascii_only: bool) -> None:
    body = json.dumps([document, "\\\\", '\\"', "a"], ensure_ascii=ascii_only).encode()
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "_PIECE_BYTES", piece)
        assert bodies.without_strings(body) == b"".join(plain.split(b'"')[::2])


def test_the_parts_in_which_events_are_evaluated_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = [5, 6, 10**6, 7, 10**6 + 1, 10**6 + 2, 3, 10**6 + 3]
    body = PACK["json"](
        {"events": [{"fields": {"k": n % 2}, "timestamp_ms": s} for n, s in enumerate(stamps)]}
    )

    def answered() -> Any:
        detector = Detector(new_id=lambda: "a" * 32)
        detector.add_rule("r", "per k (count(k == k) within 1s >= 2)")
        turns: list[int] = []
        answer = evaluate_batch_body(detector, body, "json", lambda: turns.append(1))
        return answer, detector.refused, detector.verdicts.take(), len(turns)

    *whole, once = answered()
    monkeypatch.setattr(events, "FIRST_EVENTS", 1)
    monkeypatch.setattr(events, "PART_S", 0.0)
    *parted, often = answered()
    assert parted == whole
    assert (once, often) == (1, len(stamps))
    monkeypatch.setattr(events, "PART_S", 60.0)
    *parted, sometimes = answered()
    assert parted == whole
    assert sometimes == 4, "each part is twice as long as the one before"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "lines"])
def test_the_collector_never_looks_through_the_events_of_a_batch(form: str) -> None:
    """It would hold the process for a third of a second."""
    event = b'{"fields":{"a":[' + b",".join([b"[]"] * 900) + b']},"timestamp_ms":0}'
    count = 250
    body = b'{"events":[' + b",".join([event] * count) + b"]}"
    if form == "lines":
        body = b"\n".join([b'{"event":' + event + b"}"] * count)
    detector = Detector()
    looked_through = [0]

    def note(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            looked_through.append(len(gc.get_objects(generation=0)))

    gc.collect()
    gc.callbacks.append(note)
    try:
        answer, _ = evaluate_batch_body(detector, body) if form == "json" else evaluate_lines(detector, body)
    finally:
        gc.callbacks.remove(note)
    assert isinstance(answer, Done)
    assert max(looked_through) < 10_000


LATE = b'{"fields":{"a":[[1]]},"timestamp_ms":0}'
NO_TIME = b'{"a":[[1]]}'


@pytest.mark.slow
@pytest.mark.parametrize(
    "evaluate",
    [
        lambda detector: evaluate_batch_body(detector, b'{"events":[' + b",".join([LATE] * 300) + b"]}"),
        lambda detector: evaluate_batch_body(
            detector, b'{"events":[' + b",".join([LATE] * 300) + b"]}", detailed=True
        ),
        lambda detector: evaluate_lines(detector, b"\n".join([b'{"event":' + LATE + b"}"] * 300)),
        lambda detector: ingest(detector, Ingest(b"\n".join([LATE] * 300), are_events=True), 0),
        lambda detector: ingest(detector, Ingest(b"\n".join([NO_TIME] * 300), "time", are_events=False), 0),
    ],
)
def test_refused_events_are_freed_without_the_collector(evaluate: Callable[[Detector], Any]) -> None:
    """After ten thousand of them it would hold the process for a tenth of a second, at each batch."""
    detector = Detector()
    detector.add_rule("rule", "a == 1")
    detector.evaluate({}, 10**9)
    evaluate(detector)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        evaluate(detector)
        assert len(gc.get_objects()) < before + 100
    finally:
        gc.enable()
    assert sum(detector.refused.values()) >= 598


def test_a_refused_batch_changes_nothing_whichever_portion_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    short(monkeypatch)
    detector = Detector()
    good = b'{"fields":{"a":1},"timestamp_ms":1}'
    for bad in (good.replace(b":1}", b':"x"}'), good.replace(b":1}", b":" + b"9" * 5_000 + b"}")):
        answer, refused = evaluate_batch_body(
            detector, b'{"events":[' + b",".join([good] * 9 + [bad]) + b"]}"
        )
        assert isinstance(answer, Refused)
        assert refused == ()
        assert detector.events_seen == 0
