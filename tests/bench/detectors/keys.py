"""A million keys: the memory they take and give back, and the pauses they cause.

Each figure comes from a process of its own. Keys are made anew for each event, as they come off a wire, so
that whoever keeps them pays for them.
"""

import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from engine import Detector, Limits
from engine.evaluation.slices.histories import SWEPT_FROM
from engine.runtime.process.collector import collect_seldom
from engine.runtime.process.large_blocks import map_large_blocks
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.fresh import call, resident_bytes
from tests.bench.measuring.rows import Part, Row, Target, at_most

CASE = "keys"
RULE = "per user once within 10m failed == true"
WINDOW_MS = 600_000
SETTLING_EVENTS = 20_000
"""Events between two looks at the memory, while keys that have expired are forgotten."""
PAUSE_MS_MAX = 5
WITHIN_S = 15
"""After so long a process stops where it is, and its figures are of as many keys as it has come to."""
LOOK_EVENTS = 1_000
"""Events between two looks at the clock."""


def parts(effort: Effort) -> list[Part]:
    """Give a part for memory, one for many rules over the keys, and one for pauses."""
    return [
        Part(CASE, partial(measure_memory, effort), "memory"),
        Part(CASE, partial(measure_narrow_rules, effort), "narrow rules"),
        Part(CASE, partial(measure_pauses, effort), "pauses"),
    ]


def user(number: int) -> str:
    """Give a key, as a text of its own."""
    return f"user-{number:07d}"


def time_of(number: int) -> float:
    """Give the time of an event, so that all of a growth lie well within the window."""
    return number // 4


# -- in processes of their own -------------------------------------------------------------------------------


def keep(keys: int) -> dict[str, float]:
    """Let keys come to life, look at the memory; let them expire, and look again when it has settled."""
    detector = Detector(limits=Limits(keys_max=keys))
    detector.add_rule("failed lately", RULE)
    detector.evaluate({"user": user(0), "failed": True}, 0.0, None)
    before_bytes = resident_bytes()
    for number in range(1, keys):
        detector.evaluate({"user": user(number), "failed": True}, time_of(number), None)
    taken_bytes = resident_bytes() - before_bytes
    kept_bytes, events = _settled(detector, keys, before_bytes)
    return {"taken_bytes": taken_bytes, "kept_bytes": kept_bytes, "settling_events": events}


def _settled(detector: Detector, keys: int, before_bytes: int) -> tuple[int, int]:
    """Send events past the window until memory falls no more; give what is kept, and how many it took."""
    now_ms = time_of(keys) + WINDOW_MS + 1
    least_bytes, unchanged, events = resident_bytes(), 0, 0
    # So few slices stay though they have expired. Shards shrink one after another.
    while (detector.histories.live > SWEPT_FROM or unchanged < 3) and events <= 2 * keys:
        for _ in range(SETTLING_EVENTS):
            detector.evaluate({"user": "one", "failed": False}, now_ms, None)
        events += SETTLING_EVENTS
        held_bytes = resident_bytes()
        unchanged = unchanged + 1 if held_bytes >= 0.99 * least_bytes else 0
        least_bytes = min(least_bytes, held_bytes)
    return least_bytes - before_bytes, events


def keep_in_a_dict(keys: int) -> dict[str, float]:
    """Keep the same in a dict from user to time, and clear it."""
    latest_ms: dict[str, float] = {}
    before_bytes = resident_bytes()
    for number in range(1, keys):
        latest_ms[user(number)] = float(time_of(number))
    taken_bytes = resident_bytes() - before_bytes
    latest_ms.clear()
    return {"taken_bytes": taken_bytes, "kept_bytes": resident_bytes() - before_bytes}


def keep_for_narrow_rules(keys: int, rules: int, keys_of_rule: int) -> dict[str, float]:
    """Keep one rule's million keys, and those few of each of many other rules."""
    detector = Detector(limits=Limits(keys_max=keys))
    detector.add_rule("failed lately", RULE)
    for number in range(rules):
        past = f'once within 10m (type == "v{number}" and failed == true)'
        detector.add_rule(f"rule {number}", f'type == "v{number}" and per user ({past})')
    detector.evaluate({"user": user(0), "type": "v0", "failed": True}, 0.0, None)
    before_bytes = resident_bytes()
    started_s = time.perf_counter()
    for number in _in_time(range(1, keys)):
        fields = {"user": user(number), "type": _type_of(number, rules, keys_of_rule), "failed": True}
        detector.evaluate(fields, time_of(number), None)
    took_s, reached = time.perf_counter() - started_s, number + 1
    taken_bytes = resident_bytes() - before_bytes
    return {"taken_bytes": taken_bytes, "keys": reached, "event_us": took_s / reached * 1e6}


def _in_time(numbers: range) -> Iterator[int]:
    """Give the numbers until time is up."""
    until_s = time.monotonic() + WITHIN_S
    for number in numbers:
        yield number
        if number % LOOK_EVENTS == 0 and time.monotonic() > until_s:
            return


def _type_of(number: int, rules: int, keys_of_rule: int) -> str:
    return f"v{number % rules}" if number < rules * keys_of_rule else "of no rule"


def keep_narrowly_in_dicts(keys: int, rules: int, keys_of_rule: int) -> dict[str, float]:
    """Keep the same in a dict for each rule, with the texts of the keys shared between them."""
    latest_ms: dict[str, float] = {}
    of_type: dict[str, dict[str, float]] = {f"v{number}": {} for number in range(rules)}
    before_bytes = resident_bytes()
    for number in range(1, keys):
        now_ms, name = float(time_of(number)), user(number)
        latest_ms[name] = now_ms
        narrow = of_type.get(_type_of(number, rules, keys_of_rule))
        if narrow is not None:
            narrow[name] = now_ms
    return {"taken_bytes": resident_bytes() - before_bytes}


def pauses(kind: str, keys: int, keys_max: int, runs: int) -> dict[str, float]:
    """Give the longest call, and the 99.99th percentile, of several runs of one kind of load, in ms.

    `longest_ms` and `rare_ms` are the medians over the runs, `worst_ms` is the longest call of all. A
    detector does the same at the same event of each run, a shared machine seldom disturbs the same one twice:
    `own_ms` is the longest call if of each the shortest run counts.
    """
    # As in an actor.
    collect_seldom()
    map_large_blocks()
    took_ns = [_took_ns(kind, keys, keys_max) for _ in range(runs)]
    longest_ns = [max(run) for run in took_ns]
    return {
        "longest_ms": statistics.median(longest_ns) / 1e6,
        "worst_ms": max(longest_ns) / 1e6,
        "own_ms": max(map(min, zip(*took_ns, strict=False))) / 1e6,
        "rare_ms": statistics.median(sorted(run)[-1 - len(run) // 10_000] for run in took_ns) / 1e6,
        "keys": min(map(len, took_ns)),
    }


def _took_ns(kind: str, keys: int, keys_max: int) -> "array[int]":
    match kind:
        case "grow":
            return _timed(_evaluation(Detector(limits=Limits(keys_max=keys))), keys)
        case "expire":
            evaluate = _evaluation(Detector(limits=Limits(keys_max=keys)))
            for number in _in_time(range(keys)):
                evaluate(number)({"user": user(number), "failed": True})
            later_ms = time_of(keys) + WINDOW_MS + 1
            return _timed(lambda later: evaluate(later, later_ms), number + 1)
        case "evict":
            return _timed(_evaluation(Detector(limits=Limits(keys_max=keys_max))), keys)
        case "dict":
            latest_ms: dict[str, float] = {}
            return _timed(lambda _: lambda fields: latest_ms.__setitem__(fields["user"], 0.0), keys)
        case _:
            return _timed(lambda _: lambda fields: fields, keys)


def _evaluation(detector: Detector) -> Callable[..., Callable[[dict[str, Any]], object]]:
    detector.add_rule("failed lately", RULE)
    evaluate = detector.evaluate

    def at(number: int, later_ms: float = 0.0) -> Callable[[dict[str, Any]], object]:
        now_ms = later_ms + time_of(number)
        return lambda fields: evaluate(fields, now_ms, None)

    return at


def _timed(act: Callable[[int], Callable[[dict[str, Any]], object]], count: int) -> "array[int]":
    took_ns = array("q", bytes(8 * count))
    now_ns = time.perf_counter_ns
    for number in _in_time(range(count)):
        fields, step = {"user": user(number), "failed": True}, act(number)
        started_ns = now_ns()
        step(fields)
        took_ns[number] = now_ns() - started_ns
    return took_ns[: number + 1]


# -- what comes of them --------------------------------------------------------------------------------------


def measure_memory(effort: Effort) -> list[Row]:
    """Give what a key takes, and what is still held after all have expired."""
    # How much of a page of memory is free in the end depends on what else came to lie in it.
    runs = [call(__name__, "keep", keys=effort.keys) for _ in range(effort.long_runs)]
    kept = runs[0]
    plain = call(__name__, "keep_in_a_dict", keys=effort.keys)
    ratio = kept["taken_bytes"] / plain["taken_bytes"]
    shares = [run["kept_bytes"] / run["taken_bytes"] for run in runs]
    held, plainly_held = statistics.median(shares), plain["kept_bytes"] / plain["taken_bytes"]
    return [
        Row(
            case=CASE,
            name=f"memory of {effort.keys} live keys",
            unit="bytes a key",
            ours=kept["taken_bytes"] / effort.keys,
            floor=plain["taken_bytes"] / effort.keys,
            ratio=ratio,
            over="plain dict",
            target=at_most(1.5, ratio, "at most 1.5x a plain dict"),
        ),
        Row(
            case=CASE,
            name=f"held after all {effort.keys} keys expired",
            unit="% of what they took",
            ours=100 * held,
            worst=100 * max(shares),
            floor=100 * plainly_held,
            # Over all that was taken: what a cleared dict holds is next to nothing, and no yardstick.
            ratio=max(held, 0.01),
            over="what they took",
            target=at_most(0.1, held, "at most 10 %"),
            tolerance=1.0,
            remark=f"settled after {kept['settling_events']:.0f} events",
        ),
    ]


def measure_narrow_rules(effort: Effort) -> list[Row]:
    """Give what many rules take that each see few of the keys."""
    sizes = {"rules": effort.narrow_rules, "keys_of_rule": effort.keys_of_narrow_rule}
    kept = call(__name__, "keep_for_narrow_rules", keys=effort.keys, **sizes)
    plain = call(__name__, "keep_narrowly_in_dicts", keys=int(kept["keys"]), **sizes)
    ratio = kept["taken_bytes"] / plain["taken_bytes"]
    return [
        Row(
            case=CASE,
            name=f"memory of {effort.narrow_rules} rules of {effort.keys_of_narrow_rule} keys each "
            f"over {effort.keys} keys",
            unit="MB",
            ours=kept["taken_bytes"] / 1e6,
            floor=plain["taken_bytes"] / 1e6,
            ratio=ratio,
            over="plain dicts",
            target=at_most(1.5, ratio, "at most 1.5x plain dicts"),
            remark=f"{kept['keys']:.0f} keys, {kept['event_us']:.1f} µs per event",
        )
    ]


def measure_pauses(effort: Effort) -> list[Row]:
    """Give the longest call while keys come, go, and are driven out, beside an empty loop's longest step.

    What ratios are over is the longest step of a plain dict that grows as large: it moves as a whole.
    """
    kinds = ("grow", "expire", "evict", "dict", "idle")
    runs = {
        kind: call(
            __name__,
            "pauses",
            kind=kind,
            keys=effort.keys,
            keys_max=effort.keys_max,
            runs=effort.long_runs,
        )
        for kind in kinds
    }
    longest = {kind: run["longest_ms"] for kind, run in runs.items()}
    names = {
        "grow": f"longest call while {effort.keys} keys come",
        "expire": f"longest call while {effort.keys} keys expire",
        "evict": f"longest call while keys past {effort.keys_max} are evicted",
    }
    return [
        Row(
            case=CASE,
            name=name,
            unit="ms",
            ours=longest[kind],
            worst=runs[kind]["worst_ms"],
            floor=longest["dict"],
            ratio=longest[kind] / longest["dict"],
            over="plain dict's growth",
            target=Target(
                text=f"at most {PAUSE_MS_MAX} ms beyond an empty loop's longest step",
                met=longest[kind] <= PAUSE_MS_MAX + longest["idle"],
            ),
            tolerance=2.0,
            remark=f"p99.99 {runs[kind]['rare_ms']:.3f}, {runs[kind]['keys']:.0f} calls; "
            f"in each of {effort.long_runs} runs at the same event {runs[kind]['own_ms']:.3f}; "
            f"empty loop {longest['idle']:.3f}, at worst {runs['idle']['worst_ms']:.3f}",
        )
        for kind, name in names.items()
    ]
