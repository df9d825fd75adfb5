"""All cases by name, in the order of the table."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.bench import (
    activation,
    bodies,
    counting,
    curve,
    durability,
    front,
    growth,
    indexed,
    keys,
    patterns,
    ranges,
    restless,
    shared,
    stateless,
    temporal,
    transport,
    trying,
    worst,
)
from tests.bench.effort import Effort
from tests.bench.rows import Part

CASES: Final[Mapping[str, Callable[[Effort], list[Part]]]] = {
    module.CASE: module.parts
    for module in (
        stateless,
        curve,
        indexed,
        ranges,
        restless,
        shared,
        temporal,
        counting,
        patterns,
        growth,
        keys,
        bodies,
        worst,
        durability,
        transport,
        activation,
        trying,
        front,
    )
}
"""What can be measured, by name."""
