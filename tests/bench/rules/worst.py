"""The most expensive events and batches within the limits.

A body is as large as it may be, or nearly so, and made to cost as much as it can. What is measured is a whole
evaluation, from the bytes of the body to those of the answer, beside decoding alone.
"""

import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgpack
import msgspec

from engine import Detector
from engine.evaluation.wire.batches import BatchForm
from engine.evaluation.wire.events import evaluate_batch_body
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.rows import Part, Row

CASE = "worst"
MIB = 1024 * 1024
PASSES_MAX = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """One expensive shape: rules and a batch. Each gets a share of its full size."""

    name: str
    rules: Callable[[float], list[str]]
    body: Callable[[float], bytes]
    form: BatchForm = "json"
    once: bool = False
    """Whether a detector gets the body only once, because its events advance the clock."""


def parts(effort: Effort) -> list[Part]:
    """Return a part for each shape."""
    return [Part(CASE, partial(measure, shape, effort), shape.name) for shape in SHAPES]


def measure(shape: Shape, effort: Effort) -> list[Row]:
    """Return how long one body takes, and how long decoding it alone takes."""
    share = effort.worst_share
    body = shape.body(share)
    detector = _ready(shape, share)
    decode = msgspec.json.decode if shape.form == "json" else msgspec.msgpack.decode

    def evaluated() -> object:
        return evaluate_batch_body(detector, body, shape.form)

    if not shape.once:
        # Lazy compilation does not depend on the body.
        evaluated()
    passes: list[tuple[float, float]] = []
    for _ in range(min(effort.passes, PASSES_MAX)):
        passes.append((_timed(evaluated), _timed(lambda: decode(body))))
        if shape.once:
            detector = _ready(shape, share)
    ours_s, floor_s = zip(*passes, strict=True)
    return [
        Row(
            case=CASE,
            name=shape.name,
            unit="ms a body",
            remark=f"{len(body) / MIB:.2f} MiB",
            ours=1e3 * statistics.median(ours_s),
            worst=1e3 * max(ours_s),
            floor=1e3 * statistics.median(floor_s),
            ratio=statistics.median(ours / floor for ours, floor in passes),
            over="decoding alone",
        )
    ]


def _ready(shape: Shape, share: float) -> Detector:
    """Return a detector with the rules, which has seen an event."""
    detector = Detector()
    for number, rule in enumerate(shape.rules(share)):
        detector.add_rule(f"{number} " + "n" * 240, rule)
    detector.evaluate({"x": 0, "k": ""}, 0)
    return detector


def _timed(act: Callable[[], object]) -> float:
    gc.collect()
    # Of this process alone: what else the machine does takes less of it than of the time that passes.
    started_s = time.process_time()
    made = act()
    took_s = time.process_time() - started_s
    del made
    return took_s


def _many(rule: str, count: int) -> Callable[[float], list[str]]:
    return lambda share: [rule.replace("{}", str(number)) for number in range(max(1, int(count * share)))]


def _event(**fields: Any) -> bytes:
    return json.dumps({"events": [{"fields": fields, "timestamp_ms": 0}]}).encode()


def _batch(count: int, sent: dict[str, Any] | None = None, **fields: Any) -> bytes:
    """Return a batch of equal events."""
    events = [{"fields": fields, "timestamp_ms": 10**9}] * count
    return json.dumps({"events": events, "context": {"vars": sent or {}}}).encode()


def _passing(share: float, step_ms: int) -> bytes:
    """Return a batch of events with different values, keys and increasing times."""
    events: list[dict[str, Any]] = [
        {"fields": {"x": number, "k": f"key {number}"}, "timestamp_ms": number * step_ms}
        for number in range(int(10_000 * share))
    ]
    return json.dumps({"events": events}).encode()


def _raw(member: bytes, count: int) -> bytes:
    event = b'{"fields":{"x":[' + b",".join([member] * (count // SPREAD)) + b']},"timestamp_ms":0}'
    return b'{"events":[' + b",".join([event] * SPREAD) + b"]}"


def _texts(share: float) -> list[str]:
    return [f"element {number}" for number in range(int(60_000 * share))]


def _tuples(share: float) -> list[list[Any]]:
    return [[f"user {number}", number] for number in range(int(20_000 * share))]


NESTED = b"[" * 58 + b"]" * 58
VALUES = 990_000
"""Nearly as many as a body may hold."""
SPREAD: Final = 20
"""Over this many events, because each event may hold fewer."""

SHAPES = (
    Shape(
        "1 000 rules `contains` a text",
        _many('x contains "no {}"', 1_000),
        lambda share: _event(x=_texts(share)),
    ),
    Shape(
        "1 000 rules per key of a long text",
        _many("per x per k{} once y == 1", 1_000),
        lambda share: _event(x="x" * int(1_000_000 * share), y=1),
    ),
    Shape(
        "one rule of 900 `contains`",
        lambda share: [" and ".join(f"not x contains -{number}" for number in range(int(900 * share) + 1))],
        lambda share: _event(x=list(range(int(150_000 * share)))),
    ),
    Shape(
        # Each rule is selected by one element, and walks through all of them.
        "900 rules `some` that an array of 9 000 selects",
        _many("some x (a == {} and b == -1)", 900),
        lambda share: _event(x=[{"a": number, "b": number} for number in range(int(9_000 * share))]),
    ),
    Shape(
        "10 rules of 390 predicates, each of which selects the rule",
        _many(" or ".join(f'x{number} contains "no {{}}"' for number in range(390)), 10),
        lambda share: _batch(
            10,
            **{
                f"x{number}": "no 0, no 1, no 2, no 3, no 4, no 5, no 6, no 7, no 8, no 9"
                for number in range(int(390 * share))
            },
        ),
    ),
    Shape(
        "20 000 rules on other names, 10 000 events",
        _many("a.b{} == 1 or $c{} == 1", 20_000),
        lambda share: _batch(int(10_000 * share), x=1),
    ),
    Shape(
        # Each event changes all memories, and makes no rule true.
        "1 000 rules of `max` over nearly all of 1 000 events",
        _many("max(x where not k == {}) within 1m > 1000000", 1_000),
        lambda share: _passing(share / 10, 1),
        once=True,
    ),
    Shape(
        "10 000 events, a relation of 20 000 tuples",
        _many("owns(x, {})", 30),
        lambda share: _batch(int(10_000 * share), {"owns": _tuples(share)}, x="user 1"),
    ),
    Shape(
        "10 000 events, 240 rules that fire",
        _many("x == 1 or x == {}", 240),
        lambda share: _batch(int(10_000 * share), x=1),
    ),
    Shape(
        # One memory serves all windows.
        "100 events, 5 000 rules that count in windows of their own",
        _many("per k (count(x == 1) within 1{}s >= 3)", 5_000),
        lambda share: _batch(int(100 * share) + 1, x=1, k="a"),
    ),
    Shape(
        "10 000 events, 30 counts of 10 000",
        _many("count(x >= {}) >= 10000", 30),
        partial(_passing, step_ms=1),
        once=True,
    ),
    Shape(
        # The records without keys of more of them could take more than half of `--max-state-bytes`.
        "10 000 events, 14 times 10 000 different values",
        _many("distinct(x where x >= {}) > 10000", 14),
        partial(_passing, step_ms=1),
        once=True,
    ),
    Shape(
        "10 000 events of as many keys, 30 records for each",
        _many("per k (distinct(x where x >= {}) within 1h > 20)", 30),
        partial(_passing, step_ms=1),
        once=True,
    ),
    Shape(
        "10 000 events, 30 sums that a pane leaves at each event",
        _many("sum(x) within 7.1{}s > 5", 30),
        partial(_passing, step_ms=30),
        once=True,
    ),
    Shape("empty objects", _many("x contains {}", 1), lambda share: _raw(b"{}", int(VALUES * share))),
    Shape(
        "nested to the limit",
        _many("x contains {}", 1),
        lambda share: _raw(NESTED, int(VALUES // 60 * share)),
    ),
    Shape(
        "msgpack, too many values, refused",
        _many("x contains {}", 1),
        lambda share: (
            msgpack.packb({"events": []})[:-1]
            + b"\xdd"
            + int(16_000_000 * share).to_bytes(4)
            + b"\x80" * int(16_000_000 * share)
        ),
        "msgpack",
    ),
)
