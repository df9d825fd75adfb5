"""Conditions that count, for each of many keys: the cost of an event and the memory of a key.

With many keys an event mostly waits for memory. Bodies are decoded just before each batch, as in the
service, and only evaluation is timed. The contestants judge one batch after another in turns, so what slows
the machine slows all. Garbage is collected as seldom as in workers, so that no collection of all that is
kept by hand falls into somebody's batch.
"""

import gc
import random
import statistics
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from engine import Detector
from engine.runtime.process.collector import collect_seldom
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.fresh import call
from tests.bench.measuring.race import BATCH_EVENTS, Disagreement, Event
from tests.bench.measuring.rows import Part, Row, at_most
from tests.reference_panes import pane_us

CASE = "counting"
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
EVENTS_OF_KEY = 4
"""Events of each key before anything is timed."""
EVENTS_OF_KEPT_KEY = 25
"""Events of each key before its memory is measured: enough for every condition to hold at some."""
KEPT_SHARE = 16
"""The factor by which fewer keys are used to measure memory, because they have more events."""
EVERY_MS = 12_500
"""The mean time between two events of a key. Times are then exact in doubles, so that those who count by hand
do not miss the edge of a window by an error of rounding."""
USERS = 1_000
SKEW = 4
FAILING = 0.9
"""The share of events that fail."""

Judge = Callable[[dict[str, Any], float], bool]


class Form(NamedTuple):
    """A condition, and the same by hand."""

    name: str
    condition: str
    by_hand: Callable[[], Judge]
    kept_by_hand: Callable[[], Judge] | None = None
    """Keeps as much as explanations need, if `by_hand` keeps less to be faster."""


def once_by_hand() -> Judge:
    """A time for each key."""
    latest_ms: dict[str, float] = {}

    def judge(fields: dict[str, Any], now_ms: float) -> bool:
        if fields["ok"] is False:
            latest_ms[fields["ip"]] = now_ms
        return latest_ms.get(fields["ip"], -DAY_MS) >= now_ms - MINUTE_MS

    return judge


def count_by_hand() -> Judge:
    """The latest five times for each key."""
    times_ms: dict[str, deque[float]] = {}

    def judge(fields: dict[str, Any], now_ms: float) -> bool:
        latest = times_ms.get(fields["ip"])
        if latest is None:
            latest = times_ms[fields["ip"]] = deque(maxlen=5)
        if fields["ok"] is False:
            latest.append(now_ms)
        return len(latest) == 5 and latest[0] >= now_ms - MINUTE_MS

    return judge


def distinct_by_hand() -> Judge:
    """The latest 21 values for each key, each with its time."""
    values: dict[str, dict[str, float]] = {}

    def judge(fields: dict[str, Any], now_ms: float) -> bool:
        seen = values.get(fields["ip"])
        if seen is None:
            seen = values[fields["ip"]] = {}
        seen.pop(fields["user"], None)
        seen[fields["user"]] = now_ms
        if len(seen) > 21:
            del seen[next(iter(seen))]
        return len(seen) > 20 and next(iter(seen.values())) >= now_ms - HOUR_MS

    return judge


def sum_by_hand() -> Judge:
    """A sum for each pane and key."""
    width_ms = pane_us(DAY_MS / 1000) / 1000
    sums: dict[str, dict[int, float]] = {}

    def judge(fields: dict[str, Any], now_ms: float) -> bool:
        panes = sums.get(fields["ip"])
        if panes is None:
            panes = sums[fields["ip"]] = {}
        pane = int(now_ms // width_ms)
        panes[pane] = panes.get(pane, 0.0) + fields["amount"]
        oldest = (now_ms - DAY_MS) // width_ms
        return sum(added for pane, added in panes.items() if pane >= oldest) > 1000

    return judge


def ages_by_hand() -> Judge:
    """All times of the window for each key."""
    times_ms: dict[str, deque[float]] = {}

    def judge(fields: dict[str, Any], now_ms: float) -> bool:
        kept = times_ms.get(fields["ip"])
        if kept is None:
            kept = times_ms[fields["ip"]] = deque()
        if fields["ok"] is False:
            kept.append(now_ms)
        while kept and kept[0] < now_ms - 2 * MINUTE_MS:
            kept.popleft()
        return bool(kept) and kept[0] <= now_ms - MINUTE_MS / 3

    return judge


def since_by_hand() -> Judge:
    """A number for each key."""
    counts: dict[str, int] = {}

    def judge(fields: dict[str, Any], now_ms: float) -> bool:
        count = counts[fields["ip"]] = 0 if fields["ok"] is True else counts.get(fields["ip"], 0) + 1
        return count >= 3

    return judge


def times_since_by_hand() -> Judge:
    """The latest three times after the last reset for each key: which events were counted can be told."""
    times_ms: dict[str, list[float]] = {}

    def judge(fields: dict[str, Any], now_ms: float) -> bool:
        counted = times_ms.get(fields["ip"])
        if counted is None:
            counted = times_ms[fields["ip"]] = []
        if fields["ok"] is True:
            counted.clear()
        else:
            counted.append(now_ms)
            if len(counted) > 3:
                del counted[0]
        return len(counted) == 3

    return judge


ONCE = Form("once within", "per ip once within 1m ok == false", once_by_hand)
FORMS = (
    Form("count", "per ip (count(ok == false) within 1m >= 5)", count_by_hand),
    Form("once within two bounds", "per ip once within [20s, 2m] ok == false", ages_by_hand),
    Form(
        "count since",
        "per ip (count(ok == false) since ok == true >= 3)",
        since_by_hand,
        times_since_by_hand,
    ),
    Form("distinct", "per ip (distinct(user) within 1h > 20)", distinct_by_hand),
    Form("sum", "per ip (sum(amount) within 1d > 1000)", sum_by_hand),
)


def parts(effort: Effort) -> list[Part]:
    """Return a part for events of many keys, and one for the memory that these take."""
    measures = {"events": measure, "memory": measure_memory}
    return [Part(CASE, partial(each, effort), name) for name, each in measures.items()]


def bodies(keys: int, *, skewed: bool) -> Iterator[bytes]:
    """Yield batches without end, as JSON: [fields, time] each."""
    drawn = random.Random(keys)
    number = 0
    while True:
        batch = []
        for _ in range(BATCH_EVENTS):
            key = int(keys * drawn.random() ** (SKEW if skewed else 1))
            fields = {
                "ip": f"address {key}",
                "ok": drawn.random() >= FAILING,
                "user": f"user {drawn.randrange(USERS)}",
                "amount": drawn.randrange(250) / 2,
            }
            batch.append((fields, number * EVERY_MS / keys))
            number += 1
        yield msgspec.json.encode(batch)


def decoded(body: bytes) -> list[Event]:
    """Return the events of a batch, as new objects."""
    return [(fields, time_ms, None) for fields, time_ms in msgspec.json.decode(body)]


def _detector(form: Form) -> Detector:
    detector = Detector()
    detector.add_rule(form.name, form.condition)
    return detector


class Lap(NamedTuple):
    """The cost of an event in one batch, in seconds."""

    ours_s: float
    floor_s: float


def laps(forms: Sequence[Form], keys: int, effort: Effort, *, skewed: bool) -> list[list[Lap]]:
    """Time all forms on the same batches, once each key has had some events; give their laps by form.

    Raises Disagreement: until then, verdicts are compared and nothing is timed.
    """
    runners = [(form, _detector(form), form.by_hand()) for form in forms]
    timings: list[list[Lap]] = [[] for _ in forms]
    warm = EVENTS_OF_KEY * keys // BATCH_EVENTS + 1
    timed = max(1, effort.passes * effort.pass_events_max // BATCH_EVENTS)
    for number, body in zip(range(warm + timed), bodies(keys, skewed=skewed), strict=False):
        for lap, (form, detector, judge) in zip(timings, runners, strict=True):
            events = decoded(body)
            started_s = time.process_time()
            fired = detector.evaluate_many(events)
            ours_s = time.process_time() - started_s
            events = decoded(body)
            started_s = time.process_time()
            expected = [judge(fields, time_ms) for fields, time_ms, _ in events]
            floor_s = time.process_time() - started_s
            if list(map(bool, fired)) != expected:
                raise Disagreement(f"{form.condition}, batch {number}")
            if number >= warm:
                lap.append(Lap(ours_s / BATCH_EVENTS, floor_s / BATCH_EVENTS))
    return timings


def measure(effort: Effort) -> list[Row]:
    """Return thousands of events per second."""
    forms = [ONCE, *FORMS]
    usual = gc.get_threshold()
    collect_seldom()
    try:
        timings = laps(forms, effort.keys, effort, skewed=False)
    finally:
        gc.set_threshold(*usual)
    return [
        Row(
            case=CASE,
            name=f"{form.name}, {effort.keys} keys",
            unit="k events/s",
            ours=1e-3 / statistics.median(lap.ours_s for lap in mine),
            worst=1e-3 / max(lap.ours_s for lap in mine),
            floor=1e-3 / statistics.median(lap.floor_s for lap in mine),
            ratio=statistics.median(lap.ours_s / lap.floor_s for lap in mine),
            over="by hand",
        )
        for form, mine in zip(forms, timings, strict=True)
    ]


# -- in processes of their own -------------------------------------------------------------------------------


def keep(form: str, keys: int, by_hand: bool) -> dict[str, float]:
    """Return the memory of keys after some events of each, what the detector reports, and the firings."""
    chosen = next(each for each in (ONCE, *FORMS) if each.name == form)
    detector, judge = _detector(chosen), (chosen.kept_by_hand or chosen.by_hand)()
    batches = bodies(keys, skewed=False)
    # What the first event allocates does not belong to the keys.
    [(fields, time_ms, _)] = decoded(next(batches))[:1]
    detector.evaluate(fields, time_ms)
    judge(fields, time_ms)
    fired = 0
    # Resident memory would miss what fits where decoded events were before.
    tracemalloc.start()
    for _ in range(EVENTS_OF_KEPT_KEY * keys // BATCH_EVENTS + 1):
        events = decoded(next(batches))
        if by_hand:
            fired += sum(judge(fields, time_ms) for fields, time_ms, _ in events)
        else:
            fired += sum(map(bool, detector.evaluate_many(events)))
    del events
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"taken_bytes": taken_bytes, "said_bytes": detector.histories.bytes, "fired": fired}


def measure_memory(effort: Effort) -> list[Row]:
    """Return the memory of a key."""
    keys = effort.keys // KEPT_SHARE
    rows = []
    for form in (ONCE, *FORMS):
        kept = call(__name__, "keep", form=form.name, keys=keys, by_hand=False)
        plain = call(__name__, "keep", form=form.name, keys=keys, by_hand=True)
        seldom = keys >= 1_000 and not plain["fired"]
        if kept["fired"] != plain["fired"] or seldom:
            raise Disagreement(f"{form.condition}: {kept['fired']} firings, {plain['fired']} by hand")
        ratio = kept["taken_bytes"] / max(1, plain["taken_bytes"])
        rows.append(
            Row(
                case=CASE,
                name=f"memory of {keys} keys, {form.name}",
                unit="bytes a key",
                remark=f"{kept['said_bytes'] / keys:.0f} by the detector's own estimate",
                ours=kept["taken_bytes"] / keys,
                floor=plain["taken_bytes"] / keys,
                ratio=ratio,
                over="plain dicts",
                target=at_most(1.6, ratio, "at most 1.6x plain dicts"),
            )
        )
    return rows
