"""The records of a body: decoded together, they are what each of them is alone."""

import json
import random
import re
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from engine.evaluation.detector import Detector
from engine.evaluation.wire import bodies
from engine.evaluation.wire.events import Done, Refused
from engine.evaluation.wire.records import ERRORS_MAX, Ingest, events_of, ingest
from engine.language.diagnostics import Refusal
from engine.language.limits import DEFAULT_LIMITS, Limits

LIMITS = Limits(batch_events_max=40, body_depth_max=4, digits_max=20)
PIECES = (
    *(
        '{"a":1}',
        '{"a":{"b":[1,2]}}',
        "{}",
        '{"s":"} {"}',
        '{"s":"}{"}',
        "7",
        "null",
        '"x"',
        "[]",
        "",
        "  \r",
    ),
    *('{"a":1', '"b":2}', ',"b":2}', "{} {}", "{}{}", "{},{}", '{"a":[{}', "{}]}", '{"a":', "7}", "}", "{"),
    *(
        '{"a":1e999}',
        '{"a":%s}' % ("1" * 21),
        '{"a":[[[[1]]]]}',
        '{"a":1,"a":2}',
        '{"time":5}',
        "\x00",
        "{}\t",
    ),
    *('{"fields":{"a":1},"timestamp_ms":5}', '{"fields":{},"timestamp_ms":1e300}', '{"fields":7}'),
)


def seen(given: Ingest, limits: Limits = LIMITS) -> list[Any]:
    try:
        events = events_of(given, 1_000, limits)
    except Refusal as refusal:
        return [refusal.entries]
    return [event.entries if isinstance(event, Refusal) else event for event in events]


@pytest.mark.parametrize("seed", range(8))
def test_records_that_are_decoded_together_are_those_that_are_decoded_alone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(seed)
    together = alone = 0
    for _ in range(400):
        pieces = PIECES if drawn.random() < 0.8 else PIECES[:5]
        lines = [drawn.choice(pieces) for _ in range(drawn.randrange(8))]
        body = drawn.choice(("\n".join(lines), f"[{','.join(lines)}]", f"[{','.join(lines)}")).encode()
        given = Ingest(body, drawn.choice((None, "time")), are_events=drawn.random() < 0.3)
        found = seen(given)
        with monkeypatch.context() as patch:
            patch.setattr(bodies, "AT_ONCE_BYTES_MAX", -1)
            assert seen(given) == found, body
        alone += any(isinstance(one[0], tuple) for one in found)
        together += bool(found) and not any(isinstance(one[0], tuple) for one in found)
    assert together >= 10
    assert alone >= 10


def test_one_object_over_several_lines_does_not_pass_for_two_others() -> None:
    for body in (b'{"a":1\n"b":2}\n{} {}', b'{"a":1\n,"b":2}\n{} {}', b'{"a":[{}\n]}\n{}{}'):
        assert [type(one[0]) is dict for one in seen(Ingest(body))] == [False, False, False]


def test_a_string_may_hold_what_looks_like_two_objects() -> None:
    assert seen(Ingest(b'{"s":"} {"}\n{"s":"}{"}')) == [({"s": "} {"}, 1, {}), ({"s": "}{"}, 1, {})]


def test_a_long_body_is_decoded_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    decoded = bodies.decode_lines

    def noted(text: bytes, *rest: Any) -> Any:
        sizes.append(len(text))
        return decoded(text, *rest)

    monkeypatch.setattr("engine.evaluation.wire.records.decode_lines", noted)
    pauses: list[int] = []
    body = b"\n".join([b'{"a":"%b"}' % (b"x" * 90)] * 5_000)
    events = events_of(Ingest(body), 0, Limits(), lambda: pauses.append(len(sizes)))
    assert len(events) == 5_000
    assert max(sizes) < 100_000
    assert pauses == [*range(1, len(sizes) + 1)]


def detector_of(condition: str, limits: Limits = DEFAULT_LIMITS, now_us: Any = None) -> Detector:
    detector = Detector(limits=limits, now_us=now_us)
    detector.add_rule("r", condition)
    return detector


def counted(detector: Detector, given: Ingest) -> dict[str, Any]:
    answer, _ = ingest(detector, given, 5_000_000)
    assert isinstance(answer, Done), answer
    return msgspec.json.decode(answer.result)


def test_refused_records_are_counted_by_reason_and_the_first_of_a_whole_body_by_whoever_answers() -> None:
    detector = detector_of("a == 1")
    counted(detector, Ingest(b'{"t":1e9}', "t"))
    said = counted(detector, Ingest(b'{"t":1e9}\n{"t":1e9}\n{"t":1}\n{"t":2}\n7\n{\n{}', "t"))
    assert (said["accepted"], said["refused"]) == (2, 5)
    before = dict(detector.refused)
    assert before == {1402: 2, 1000: 1, 1001: 2}
    answer, refused = ingest(detector, Ingest(b"7\n8\n{", "t"), 0)
    assert isinstance(answer, Refused)
    assert refused == ()
    assert [entry.code for entry in answer.entries] == [1001, 1001, 1000]
    assert answer.entries[0].message == "record 0: expected an object, got a number"
    counts = {code: detector.refused[code] - before.get(code, 0) for code in detector.refused}
    assert {code: more for code, more in counts.items() if more} == {1000: 1, 1001: 1}


def test_messages_of_records_speak_of_records() -> None:
    detector = detector_of("a == 1", now_us=lambda: 2 * 10**15)
    counted(detector, Ingest(b'{"t":1e9}', "t"))
    said = counted(detector, Ingest(b'{"t":1e9}\n7\n{"a"\n{"t":9e18}\n{"t":1}', "t"))
    texts = [error["message"] for error in said["errors"]]
    assert [error["code"] for error in said["errors"]] == [1001, 1000, 1402, 1402]
    assert texts[0] == "record: expected an object, got a number"
    assert texts[1].startswith("the record is not JSON")
    assert not any("timestamp_ms" in text or "body" in text for text in texts)


def test_each_kind_of_message_is_told_once_with_its_first_record_and_their_number() -> None:
    detector = detector_of("a == 1 and (known1(b) or known2(b))")
    body = b'{"t":1e9,"b":1}\n{"t":2e9,"a":1,"b":1}\n7\n{"t":1e9,"a":1,"b":1}'
    answer, _ = ingest(detector, Ingest(body, "t"), 5_000_000)
    assert isinstance(answer, Done)
    unknown = "record 0: the relation `{}` is neither stored nor sent, and holds nothing (3 records)"
    assert msgspec.json.decode(answer.messages) == [
        {"code": 2003, "message": unknown.format(name)} for name in ("known1", "known2")
    ]
    counted(detector, Ingest(b'{"t":2000000500}', "t"))
    body = b'{"t":2000000499}\n{"t":2000000498}\n{"t":2000000600}'
    later, _ = ingest(detector, Ingest(body, "t"), 5_000_000)
    assert isinstance(later, Done)
    [late] = [one["message"] for one in msgspec.json.decode(later.messages) if one["code"] == 2001]
    assert re.fullmatch("record 0: the event came 1000 ms late .* [(]2 records[)]", late)


def test_results_that_find_no_room_are_refused_and_were_not_evaluated() -> None:
    limits = Limits(answer_bytes_max=3_000)
    detector = detector_of("a == 1", limits)
    body = b'{"a":1}\n' * 60
    said = counted(detector, Ingest(body, with_results=True))
    assert 0 < said["accepted"] < 60
    assert said["accepted"] == said["fired"] == detector.events_seen
    assert said["errors"][0]["code"] == 1400
    assert len(said["errors"]) == min(ERRORS_MAX, said["refused"])
    expected = [True] * said["accepted"] + [False] * said["refused"]
    assert [bool(one["actions"]) for one in said["results"]] == expected
    assert counted(detector, Ingest(body))["accepted"] == 60


def test_records_of_one_time_keep_their_order_and_others_are_sorted() -> None:
    drawn = random.Random(3)
    times = [drawn.randrange(20) for _ in range(300)]
    rows = [{"t": 1_000_000_000 + time, "n": number} for number, time in enumerate(times)]
    detector = detector_of("exists n")
    seen_order: list[tuple[int, int]] = []

    class Observer:
        def observe(self, fields: Any, timestamp_ms: float, sent: Any) -> None:
            seen_order.append((fields["t"], fields["n"]))

    detector.observers.append(Observer())
    counted(detector, Ingest(b"\n".join([json.dumps(row).encode() for row in rows]), "t"))
    assert len(seen_order) == 300
    assert all(one < two for one, two in pairwise(seen_order))
