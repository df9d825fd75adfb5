"""Decoding of bodies: what is no JSON, what has a wrong shape, what is past its bounds."""

import gc
import json
from contextlib import suppress
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http.handling.otlp_logs import ExportLogs
from api.http.routes import OPERATIONS
from api.schema.messages.catalogue import Name
from api.schema.messages.rules import RuleChange, RuleToPut
from engine.evaluation.wire import bodies, violations
from engine.evaluation.wire.batches import decode_batch
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.decoding import BatchBody, EvaluateBody, decode_evaluate
from engine.evaluation.wire.violations import VIOLATIONS_MAX
from engine.language.diagnostics import Refusal, did_you_mean
from engine.language.limits import Limits

BODIES = [one.body for one in OPERATIONS if isinstance(one.body, msgspec.StructMeta)] + [RuleToPut]
BODIES.remove(ExportLogs)  # OTLP demands that unknown members are ignored


class Named(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    notify: bool | msgspec.UnsetType = msgspec.UNSET
    size: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET


NAMES = "name: expected 1 to 255 characters without control characters other than tab and newline"


def refused(body: bytes, type_: type = Named) -> list[tuple[int, str]]:
    with pytest.raises(Refusal) as caught:
        decode(body, type_)
    return [tuple(entry) for entry in caught.value.entries]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"nonsense",
        b'{"name": "a"} x',
        b'{"name": "a"',
        b'{"name": NaN}',
        b'{"name": Infinity}',
        b'{"name": 1e999}',
        b'{"name": -1e999}',
        b'{"name": "\\ud800"}',
        b'{"name": "\xff"}',
        b'\xef\xbb\xbf{"name": "a"}',
        '{"name": "a"}'.encode("utf-16"),
        b'{"name":' + b"[" * 100_000,
        b'{"x":' + b"9" * 4001 + b"}",
        b'{"x":' + b"9" * 5000 + b"}",
        b'{"x": [-' + b"9" * 4001 + b"]}",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_what_is_not_json_is_1000_whatever_its_shape(body):
    (code, message), *more = refused(body)
    assert (code, more) == (1000, [])
    assert message.startswith("the body")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"name": "\\ud800"}', "a string holds half of a surrogate pair"),
        (b'{"name": "abc\xff"}', "byte 13 is not valid UTF-8"),
        (b'{"name": "abc', "input data was truncated"),
        (b'{"name": 1e999}', "number out of range"),
        (b'{"name": 1e999}' + b" " * (1 << 18), "number out of range"),
        (
            b'{"name": "' + b"x" * (1 << 18),
            "input data was truncated, or a string holds half of a surrogate pair",
        ),
        (b'{"name":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "it is nested too deeply"),
    ],
)
def test_the_reason_why_a_body_is_no_json_does_not_mislead(body, reason):
    assert refused(body) == [(1000, f"the body is not JSON: {reason}")]


def test_every_defect_of_shape_is_listed_in_document_order():
    body = b'{"event":{"fields":[],"timestamp_ms":"x","z":1},"context":null,"contxt":{}}'
    assert refused(body, EvaluateBody) == [
        (1001, "event.fields: expected an object, got an array"),
        (1001, "event.timestamp_ms: expected a number, got a string"),
        (1001, "event.z: unknown member"),
        (1001, "context: expected an object, got null"),
        (1001, "contxt: unknown member"),
    ]


def test_missing_members_are_named_and_misspelt_ones_guessed():
    assert refused(b'{"nmae": 1}') == [
        (1001, "nmae: unknown member; did you mean `name`?"),
        (1001, "name: missing"),
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "body: expected an object, got an array"),
        (b'"x"', "body: expected an object, got a string"),
        (b"null", "body: expected an object, got null"),
        (b'{"name": 5}', "name: expected a string, got a number"),
        (b'{"name": null}', "name: expected a string, got null"),
        (b'{"name": "a", "notify": null}', "notify: expected a boolean, got null"),
        (b'{"name": "a", "notify": 1}', "notify: expected a boolean, got a number"),
        (b'{"name": "a", "size": 0}', "size: the value is out of bounds"),
        (b'{"name": "a", "size": 1.5}', "size: the value is out of bounds"),
        (b'{"name": ""}', f"{NAMES}, got an empty string"),
        (b'{"name": "\\n\\u0000"}', f"{NAMES}, got 2 characters"),
        (b'{"name": "a", "%b": 1}' % (b"x" * 100), "x" * 80 + ": unknown member"),
    ],
)
def test_a_wrong_type_names_its_place_and_both_types(body, message):
    assert refused(body) == [(1001, message)]


def test_a_number_out_of_bounds_is_shown_beside_what_is_expected():
    bounded = msgspec.defstruct(
        "Bounded", [("after", Annotated[int, msgspec.Meta(ge=0, extra={"expected": "a whole number"})])]
    )
    assert refused(b'{"after": -1}', bounded) == [(1001, "after: expected a whole number, got -1")]


def test_a_text_that_is_too_short_is_told_by_its_length():
    named = msgspec.defstruct(
        "Named", [("name", Annotated[str, msgspec.Meta(min_length=2, extra={"expected": "a name"})])]
    )
    assert refused(b'{"name": "a"}', named) == [(1001, "name: expected a name, got 1 character")]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b'"lose"', "history: expected `keep`, got 4 characters"),
        (b"5", "history: expected a string, got a number"),
        (b"{}", "history: expected a string, got an object"),
    ],
)
def test_a_member_with_few_values_names_them(sent, said):
    assert refused(b'{"history": %b}' % sent, RuleChange) == [(1001, said)]


def test_a_member_with_few_values_may_stand_beside_a_defect():
    assert refused(b'{"history": "keep", "name": 5}', RuleChange) == [
        (1001, "name: expected a string, got a number")
    ]


@pytest.mark.parametrize("type_", BODIES)
def test_an_unknown_member_is_refused_whatever_else_is_wrong(type_):
    for member in msgspec.structs.fields(type_):
        for value in (None, True, 5, "x", [], [5], {}, {"x": 5}):
            with pytest.raises(Refusal):
                decode(json.dumps({member.encode_name: value, "unknown": 1}).encode(), type_)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\x00", "a\x1f", "a\x7f", "a\x85", "\x0b"])
def test_names_past_their_bounds_are_refused(name):
    ((code, message),) = refused(msgspec.json.encode({"name": name}))
    assert code == 1001
    assert message.startswith("name: expected 1 to 255 characters")


@pytest.mark.parametrize("name", ["a", "x" * 255, "tab\tand\nnewline", "ö" * 255, "\U0001f600" * 255, "a\n"])
def test_names_within_their_bounds_are_taken(name):
    assert decode(msgspec.json.encode({"name": name}), Named).name == name


NESTED = st.recursive(
    st.text('[]{}"\\\n\u00e4a') | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[{"\\'), inner, max_size=3),
    max_leaves=12,
)


def depth_of(document: Any) -> int:
    match document:
        case dict():
            return 1 + max(map(depth_of, document.values()), default=0)
        case list():
            return 1 + max(map(depth_of, document), default=0)
        case _:
            return 0


@given(st.dictionaries(st.text('[{"\\'), NESTED, max_size=4), st.booleans())
def test_depth_is_told_whatever_stands_in_strings(document, ascii_only):
    body = json.dumps(document, ensure_ascii=ascii_only).encode()
    depth = depth_of(document)
    assert decode(body, dict[str, Any], Limits(body_depth_max=depth)) == document
    with pytest.raises(Refusal, match="nested more than"):
        decode(body, dict[str, Any], Limits(body_depth_max=depth - 1))


@pytest.mark.parametrize("passes", range(4))
def test_the_depth_of_every_small_body_is_told_exactly(passes, monkeypatch):
    monkeypatch.setattr(bodies, "_PASSES", passes)
    monkeypatch.setattr(bodies, "_PIECE", 1 + passes)
    balanced = {""}
    for _ in range(5):
        balanced |= {
            f"[{inner}]{after}" for inner in balanced for after in balanced if len(inner + after) < 9
        }
    assert len(balanced) > 60
    for brackets in balanced:
        depth, deepest = 0, 0
        for bracket in brackets:
            depth += 1 if bracket == "[" else -1
            deepest = max(deepest, depth)
        for body in (brackets, brackets.replace("[[", "{[").replace("]]", "]}")):
            found = [bodies._deeper_than(body.encode(), depth_max) for depth_max in range(7)]
            assert found == [deepest > depth_max for depth_max in range(7)], body


@given(st.lists(st.dictionaries(st.sampled_from("ab"), NESTED, max_size=2), max_size=4), NESTED)
def test_the_depth_of_a_batch_is_told_exactly(fields, extra):
    document = {
        "events": [{"fields": each, "timestamp_ms": 0} for each in fields],
        "context": {"vars": {"v": extra}},
    }
    depth = depth_of(document)
    body = json.dumps(document).encode()
    assert len(decode_batch(body, Limits(body_depth_max=depth)).events) == len(fields)
    with pytest.raises(Refusal, match="nested more than"):
        decode_batch(body, Limits(body_depth_max=depth - 1))


def test_a_batch_of_flat_events_is_known_to_be_flat_without_a_look(monkeypatch):
    monkeypatch.delattr(bodies, "_deeper_than")
    events = [{"fields": {"text": "brackets ] "}, "timestamp_ms": 0}] * 1_000
    body = json.dumps({"events": events, "context": {"vars": {"v": [[1], ["a"]]}}}).encode()
    assert len(decode_batch(body, Limits()).events) == 1_000


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b'{"x":[' + b",".join([b"{}"] * 98) + b"]}", 100),
        (b'{"x":[' + b",".join([b'{"":0}'] * 49) + b"]}", 100),
        (b'{"x":[' + b",".join([b"[0,1,2]"] * 24) + b",0,0]}", 100),
        (b'{"x":' + b"[" * 98 + b"]" * 98 + b',"' + b"y" * 300 + b'":0}', 100),
        (b'{"x":[' + b",".join([b'",[{\\",["'] * 98) + b"]}", 100),
        (b'{"x":[' + b",".join([b"0 "] * 98) + b"]}", 100),
    ],
    ids=["empty", "of one", "arrays", "nested", "strings", "blanks"],
)
def test_the_values_of_a_body_are_bounded_exactly_before_it_is_decoded(body, count, monkeypatch):
    def given(values_max: int) -> Any:
        return decode(body, dict[str, Any], Limits(body_depth_max=200, body_values_max=values_max))

    assert given(count) == msgspec.json.decode(body)
    monkeypatch.delattr(bodies, "_decoder")
    with pytest.raises(Refusal, match="the body holds more than 99 values"):
        given(count - 1)


def test_integers_are_exact_up_to_4000_digits_and_strings_of_digits_are_no_integers():
    digits = b"9" * 4000
    document = decode(b'{"x":' + digits + b',"y":"' + b"9" * 9000 + b'"}', dict[str, Any])
    assert document["x"] == int(digits)
    assert decode(b'{"x":0.' + b"3" * 4100 + b"}", dict[str, Any])["x"] == pytest.approx(1 / 3)


def test_an_integer_of_too_many_digits_is_refused_wherever_it_stands():
    for before in range(40):
        body = b" " * before + b"[%s]"
        assert decode(body % (b"7" * 10), list[int], Limits(digits_max=10)) == [7_777_777_777]
        with pytest.raises(Refusal, match="more than 10 digits"):
            decode(body % (b"7" * 11), list[int], Limits(digits_max=10))


@pytest.mark.parametrize("type_", [dict[str, Any], Named])
def test_the_last_of_duplicate_members_counts(type_):
    decoded = decode(b'{"name": 1, "name": "b"}', type_)
    assert decoded == ({"name": "b"} if type_ is not Named else Named("b"))


def test_a_body_of_a_wrong_shape_that_is_nested_too_deeply_is_refused_for_its_depth():
    body = b'{"name":' + b"[" * 64 + b"]" * 64 + b"}"
    assert refused(body) == [(1000, "the body is nested more than 64 deep")]


class Loose(msgspec.Struct):
    """A type that ignores unknown members, with a number that is seldom whole."""

    ratio: float
    choice: str | msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    events: list[int] = []


def test_only_what_breaks_a_rule_of_the_type_is_a_defect():
    body = b'{"ratio": 1.5, "choice": {"a": 1}, "other": 2, "events": 3}'
    assert refused(body, Loose) == [(1001, "events: expected an array, got a number")]


@pytest.mark.parametrize(
    ("defects", "more"), [(32, []), (33, [(1001, "body: it has more defects than these")])]
)
def test_32_defects_are_told(defects, more):
    told = [(1001, f"events[{number}]: expected a number, got a string") for number in range(32)]
    body = msgspec.json.encode({"ratio": 1, "events": ["x"] * defects})
    assert refused(body, Loose) == told + more


@pytest.mark.parametrize(
    ("document", "type_"),
    [
        ({f"x{number}": 1 for number in range(40_000)}, Named),
        ({"event": {f"x{number}": 1 for number in range(40_000)}}, EvaluateBody),
        ({"events": [{}] * 50_000}, BatchBody),
        ({"x" * 500_000 + str(number): 1 for number in range(2)}, Named),
    ],
    ids=["members", "members of a member", "elements", "long names"],
)
def test_no_more_defects_are_looked_for_than_are_told(document, type_, monkeypatch):
    """Each takes a moment to tell: a body full of them would stop the process for minutes."""
    looks = []

    def looked(word, known):
        looks.append(len(word))
        return did_you_mean(word, known)

    monkeypatch.setattr(violations, "did_you_mean", looked)
    entries = refused(msgspec.json.encode(document), type_)
    assert len(looks) <= VIOLATIONS_MAX + 1
    assert max(looks, default=0) <= 80
    if len(document) > 2 or type_ is not Named:
        assert len(entries) == VIOLATIONS_MAX + 1
        assert entries[-1] == (1001, "body: it has more defects than these")


@pytest.mark.slow
@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_after_a_large_body(enabled):
    collected: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        collected.append(phase)

    body = b'{"x":[' + b",".join([b"[]"] * 50_000) + b"]}"
    was = gc.isenabled()
    gc.collect()
    gc.enable() if enabled else gc.disable()
    gc.callbacks.append(note)
    try:
        for one in (body, body + b"}"):
            with suppress(Refusal):
                decode(one, dict[str, Any])
                # But for that of what was young when it began.
                assert len(collected) <= 2
            assert gc.isenabled() is enabled
            collected.clear()
    finally:
        gc.callbacks.remove(note)
        gc.enable() if was else gc.disable()


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(digits_max=4), "an integer of more than 4 digits"),
        (Limits(body_values_max=7), "more than 7 values"),
        (Limits(body_depth_max=2), "nested more than 2 deep"),
    ],
)
def test_an_event_whose_fields_do_not_nest_is_held_to_every_bound(limits: Limits, said: str) -> None:
    body = b'{"event": {"fields": {"a": 12345, "b": 1, "c": 2, "d": 3}, "timestamp_ms": 0}}'
    assert (
        decode_evaluate(body, Limits(digits_max=5, body_values_max=8, body_depth_max=3)).event.timestamp_ms
        == 0
    )
    with pytest.raises(Refusal, match=said) as caught:
        decode_evaluate(body, limits)
    assert [entry.code for entry in caught.value.entries] == [1000]
