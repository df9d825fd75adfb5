"""All cases by name, in the order of the table."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.bench.front import front
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.rows import Part
from tests.bench.rules import counting, predicates, stateless, temporal, worst
from tests.bench.sets import bodies, curve, indexed, ratios, timed

CASES: Final[Mapping[str, Callable[[Effort], list[Part]]]] = {
    module.CASE: module.parts
    for module in (
        *(ratios, stateless, predicates, curve, indexed),
        *(temporal, counting, timed, bodies, worst, front),
    )
}
"""What can be measured, by name."""
