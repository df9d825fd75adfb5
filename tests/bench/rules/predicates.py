"""A thousand predicates on one text or address, beside ten: all together must cost one pass."""

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Event, race, submitted
from tests.bench.measuring.rows import Part, Row, at_most

CASE = "predicates"
RULES: Final = 1_000
FEW_RULES: Final = 10
GROWTH_MAX: Final = 10.0
"""How many times as much a thousand may cost as ten: a tenth of their cost one by one."""

PREDICATES: Final[dict[str, Callable[[int], str]]] = {
    "icontains": lambda n: f'path icontains "dir{n}-Part"',
    "iendswith": lambda n: f'path iendswith "File{n}.exe"',
    "like": lambda n: f'path like "*dir{n}-*file{n}.ex?"',
    "startswith": lambda n: f'path startswith "/usr/dir{n}-"',
    "endswith": lambda n: f'path endswith "/file{n}.EXE"',
    "in network": lambda n: f'ip in network "10.{n % 250}.{n // 250}.0/{24 + n % 3}"',
}


def parts(effort: Effort) -> list[Part]:
    """Return one part for each predicate."""
    return [Part(CASE, partial(measure, name, effort), name) for name in PREDICATES]


def measure(name: str, effort: Effort) -> list[Row]:
    """Return the cost of an event where a thousand rules test one fact, relative to ten rules."""
    rules = [PREDICATES[name](number) for number in range(RULES)]
    drawn = random.Random(effort.events)
    events: list[Event] = []
    for place in range(effort.events):
        number = drawn.randrange(3 * RULES)
        fields = {
            "path": f"/usr/dir{number}-part/x/file{number}.EXE",
            "ip": f"10.{number % 256}.{number % 5}.{number % 70}",
        }
        events.append((fields, place, None))
    many = race([submitted(rules)], events, effort)
    few_s = race([submitted(rules[:FEW_RULES])], events, effort).cost_s["ours"]
    growth = many.cost_s["ours"] / few_s
    return [
        Row(
            case=CASE,
            name=f"{RULES} {name}",
            unit="µs per event",
            ours=many.cost_s["ours"] * 1e6,
            worst=many.worst_s * 1e6,
            floor=few_s * 1e6,
            ratio=growth,
            over=f"{FEW_RULES} such",
            target=at_most(GROWTH_MAX, growth, f"at most {GROWTH_MAX:g}x what {FEW_RULES} cost"),
        )
    ]
