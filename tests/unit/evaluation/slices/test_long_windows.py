"""Rules with very long windows, and events at both ends of time: the engine agrees with the reference."""

import pytest

from engine.language.text.parser import parse
from tests.differential.comparison import Pair
from tests.differential.modes import TRIED, in_mode
from tests.worlds.scripts import Add, Remove, Submit

FIRST_MS, LAST_MS = -8.64e15, 8.64e15
TIMES_MS = (FIRST_MS, FIRST_MS + 1, -1.0, 0.0, 1.7e12, 1.7e12 + 0.001, LAST_MS - 1, LAST_MS)
WINDOWS_S = ("1e9", "17.28e12", "1e15", "1e300")
CONDITIONS = (
    "once within {} a == 1",
    "historically for {} a == 1",
    "historically for {} strong a == 1",
    "a == 1 since within {} b == 1",
    "earlier within {} a == 1",
    "count(a == 1) within {} >= 2",
    "distinct(b) within {} >= 2",
    "sum(b) within {} > 3",
    "avg(b) within {} > 1",
    "count(once within {0} a == 1) within {0} >= 3",
    "historically for {0} strong (once within {0} b == 1)",
    "once within {0} (a == 0 and sum(b) within {0} > 1)",
)


@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize("window", WINDOWS_S)
@pytest.mark.parametrize("per", ["", "per k "])
def test_rules_agree_with_the_reference_at_any_time(per: str, window: str, mode: str) -> None:
    with in_mode(mode):
        pair = Pair()
        for number, condition in enumerate(CONDITIONS):
            pair.apply(Add(f"{number}", parse(f"{per}({condition.format(window)})")))
        for place, time_ms in enumerate(TIMES_MS):
            if place in (3, 5):
                # A later rule shares what can be shared, and the first one goes.
                pair.apply(Add(f"later {place}", parse(f"{per}({CONDITIONS[place].format(window)})")))
                pair.apply(Remove(0))
                pair.reload()
            for key in ("x", "y"):
                fields = {"k": key, "a": (place + (key == "x")) % 2, "b": 1 + place % 3}
                pair.apply(Submit(fields, time_ms))
