"""Each temporal member as the part that many rules share, and by hand."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from engine.evaluation.operators.counting.pane_sums import pane_us
from tests.bench.measuring.race import Event

COUNTRIES = ("DE", "FR", "US", "CN", "BR", "IN", "GB", "JP")
NEVER = float("-inf")
WINDOW_MS = 600_000

Observe = Callable[[Event], Callable[[str], bool]]
"""Observes an event, and gives what tells of each country whether its history holds now."""


@dataclass(frozen=True, slots=True)
class Member:
    """A temporal member as the part that rules share, and by hand."""

    name: str
    shared: str
    history: Callable[[], Observe]
    rounds: int = 0
    """How many times every user is seen in every country first, so that each run begins after all
    births, and what joins with time has joined."""


def once(window_ms: float = float("inf"), *, earlier: bool = False, negated: bool = False) -> Observe:
    """`once`, `once within`, `earlier`, `earlier within`, and `historically`, for each user."""
    last_ms: dict[tuple[str, str], float] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        user = fields["user"]
        before_ms = last_ms.get((user, fields["country"]))
        last_ms[user, fields["country"]] = now_ms

        def seen(country: str) -> bool:
            at_ms = before_ms if earlier and country == fields["country"] else last_ms.get((user, country))
            return at_ms is not None and now_ms - at_ms <= window_ms

        return lambda country: seen(country) is not negated

    return observe


def since(window_ms: float = float("inf")) -> Observe:
    """`ok == true since country == …`, also with `within`, for each user."""
    last_ms: dict[str, dict[str, float]] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        of_user = last_ms.setdefault(fields["user"], {})
        if not fields["ok"]:
            of_user.clear()
        of_user[fields["country"]] = now_ms
        return lambda country: country in of_user and now_ms - of_user[country] <= window_ms

    return observe


def previous() -> Observe:
    """`previous country == …`, for each user."""
    latest: dict[str, str] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, _, _ = event
        before = latest.get(fields["user"])
        latest[fields["user"]] = fields["country"]
        return lambda country: country == before

    return observe


def counted() -> Observe:
    """`count(country == …) within 10m >= 3`, for each user."""
    times_ms: dict[tuple[str, str], deque[float]] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        user = fields["user"]
        times_ms.setdefault((user, fields["country"]), deque(maxlen=3)).append(now_ms)

        def holds(country: str) -> bool:
            latest = times_ms.get((user, country), ())
            return len(latest) == 3 and latest[0] >= now_ms - WINDOW_MS

        return holds

    return observe


def distinct() -> Observe:
    """`distinct(amount where country == …) within 10m > 2`, for each user."""
    values: dict[tuple[str, str], dict[int, float]] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        user = fields["user"]
        seen = values.setdefault((user, fields["country"]), {})
        seen.pop(fields["amount"], None)
        seen[fields["amount"]] = now_ms
        if len(seen) > 3:
            del seen[next(iter(seen))]

        def holds(country: str) -> bool:
            latest = values.get((user, country), {})
            return len(latest) == 3 and next(iter(latest.values())) >= now_ms - WINDOW_MS

        return holds

    return observe


def added(*, mean: bool) -> Observe:
    """`sum` and `avg` of the amounts in a country within 10m, for each user: a sum for each pane."""
    width_ms = pane_us(WINDOW_MS * 1000) / 1000
    sums: dict[tuple[str, str], dict[int, list[int]]] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        user = fields["user"]
        pane = sums.setdefault((user, fields["country"]), {}).setdefault(int(now_ms // width_ms), [0, 0])
        pane[0] += fields["amount"]
        pane[1] += 1
        oldest = (now_ms - WINDOW_MS) // width_ms

        def holds(country: str) -> bool:
            panes = [each for number, each in sums.get((user, country), {}).items() if number >= oldest]
            total, count = (sum(each) for each in zip(*panes, strict=True)) if panes else (0, 0)
            return total > 500 * count if mean else total > 1_000

        return holds

    return observe


def held_weak() -> Observe:
    """`historically for 1m country != …`, for each user."""
    last_ms: dict[tuple[str, str], float] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        user = fields["user"]
        last_ms[user, fields["country"]] = now_ms
        return lambda country: now_ms - last_ms.get((user, country), float("-inf")) > 60_000

    return observe


def held_strong() -> Observe:
    """`historically for 1m strong country != …`, for each user."""
    begun_ms: dict[tuple[str, str], float] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        user = fields["user"]
        for country in COUNTRIES:
            begun_ms.setdefault((user, country), now_ms)
        begun_ms.pop((user, fields["country"]))
        return lambda country: now_ms - begun_ms.get((user, country), float("inf")) >= 60_000

    return observe


def nested() -> Observe:
    """`once within 10m (ok == true and once within 5m country == …)`, for each user."""
    last_ms: dict[tuple[str, str], float] = {}
    last_ok_ms: dict[tuple[str, str], float] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        user = fields["user"]
        last_ms[user, fields["country"]] = now_ms
        if fields.get("ok"):
            for country in COUNTRIES:
                if now_ms - last_ms.get((user, country), float("-inf")) <= 300_000:
                    last_ok_ms[user, country] = now_ms
        return lambda country: now_ms - last_ok_ms.get((user, country), float("-inf")) <= 600_000

    return observe


MEMBERS = (
    Member("once", 'once country == "{}"', once),
    Member("once within", 'once within 10m country == "{}"', partial(once, WINDOW_MS)),
    Member("historically", 'historically country != "{}"', partial(once, negated=True)),
    Member("historically for, weak", 'historically for 1m country != "{}"', held_weak),
    Member("historically for, strong", 'historically for 1m strong country != "{}"', held_strong, 1),
    Member("since", '(ok == true since country == "{}")', since),
    Member("since within", '(ok == true since within 1h country == "{}")', partial(since, 3_600_000)),
    Member("previous", 'previous country == "{}"', previous),
    Member("earlier", 'earlier country == "{}"', partial(once, earlier=True)),
    Member("earlier within", 'earlier within 10m country == "{}"', partial(once, WINDOW_MS, earlier=True)),
    Member("count", '(count(country == "{}") within 10m >= 3)', counted),
    Member("distinct", '(distinct(amount where country == "{}") within 10m > 2)', distinct),
    Member("sum", '(sum(amount where country == "{}") within 10m > 1000)', partial(added, mean=False)),
    Member("avg", '(avg(amount where country == "{}") within 10m > 500)', partial(added, mean=True)),
    Member(
        "once within, nested", 'once within 10m (ok == true and once within 5m country == "{}")', nested, 1
    ),
)
