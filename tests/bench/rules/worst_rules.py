"""The worst rules that the limits allow, each added and met by an event, beside CPython's compile.

Rules are long in one way each: members that remember, names and keys, constants, or patterns.
"""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import re2

from engine import Detector, Limits
from engine.patterns.compiled_pattern import compile_pattern
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.rows import Part, Row, at_most

CASE = "worst"
PASSES_MAX = 3
ADDED_MS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Text:
    """A condition, and what CPython compiles instead: an expression and patterns."""

    condition: str
    python: str
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Long:
    """One way to make a rule long. It is given a share of its full size."""

    name: str
    text: Callable[[float], Text]


def parts(effort: Effort) -> list[Part]:
    """Give a part for each way."""
    return [Part(CASE, partial(measure, one, effort), f"adding {one.name}") for one in RULES]


def measure(rule: Long, effort: Effort) -> list[Row]:
    """Give how long the rule takes until an event has met it."""
    text = rule.text(effort.worst_share)
    passes = [(_added_s(text), _compiled_s(text)) for _ in range(min(effort.passes, PASSES_MAX))]
    ours_s, floor_s = zip(*passes, strict=True)
    ours_ms = 1e3 * statistics.median(ours_s)
    return [
        Row(
            case=CASE,
            name=f"adding {rule.name}",
            unit="ms, with an event",
            remark=f"{len(text.condition) / 1024:.0f} KiB",
            ours=ours_ms,
            worst=1e3 * max(ours_s),
            floor=1e3 * statistics.median(floor_s),
            ratio=statistics.median(ours / floor for ours, floor in passes),
            over="CPython's and RE2's compile",
            tolerance=0.5,
            target=at_most(ADDED_MS_MAX, ours_ms, "at most 1 s"),
        )
    ]


def _added_s(text: Text) -> float:
    detector = Detector()
    detector.add_rule("first", "x == 1")
    detector.evaluate({"x": 0, "t": ""}, 0)
    _forget_patterns(text)
    gc.collect()
    started_s = time.perf_counter()
    detector.add_rule("long", text.condition)
    detector.evaluate({"x": 1, "t": "ab" * 20}, 1)
    return time.perf_counter() - started_s


def _compiled_s(text: Text) -> float:
    _forget_patterns(text)
    gc.collect()
    started_s = time.perf_counter()
    compile(text.python, "rule", "eval")
    for pattern in text.patterns:
        re2.compile(pattern)
    return time.perf_counter() - started_s


def _forget_patterns(text: Text) -> None:
    """What is compiled already costs nothing, and no caller's pattern is."""
    if text.patterns:
        compile_pattern.cache_clear()
        re2.purge()


def _any_of(condition: str, python: str, count: int) -> Callable[[float], Text]:
    def text(share: float) -> Text:
        numbers = [str(number) for number in range(1, 2 + int((count - 1) * share))]
        return Text(
            " or ".join(condition.replace("{}", number) for number in numbers),
            " or ".join(python.replace("{}", number) for number in numbers),
        )

    return text


def _constants(share: float) -> Text:
    listed = ", ".join(f'"{number}"' for number in range(10_000, 10_001 + int(6_999 * share)))
    return Text(f"x in [{listed}]", f"x in {{{listed}}}")


def _patterns(share: float) -> Text:
    """Give patterns with which RE2 may build ever more states, as many as one condition may have."""
    made: list[str] = []
    room = Limits().condition_preparation_max * share
    while (room := room - compile_pattern(one := f"x{len(made)}[ab].{{20}}c", Limits()).preparation) > 0:
        made.append(one)
    return Text(" or ".join(f"t matches '{one}'" for one in made) or "t == 1", "True", tuple(made))


RULES = (
    Long("666 `since`", _any_of("(a == {} since within {}s b == {})", "(a == {}, {}, b == {})", 666)),
    Long("999 counts", _any_of("count(x == {}) within {}s > {}", "({}, x == {}) > {}", 999)),
    Long("666 keys", _any_of("per k{} once within {}s x == {}", "(k{}, {}, x == {})", 666)),
    Long("999 comparisons of names", _any_of("a{} == b{}", "a{} == b{}", 999)),
    Long("a list of 7 000 texts", _constants),
    Long("the costliest patterns", _patterns),
)
