"""The results of a benchmark: rows, each with a measurement, its baseline, and its target."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

TOLERANCE = 1 / 3
"""How much worse a ratio may be than the recorded one, as a share, before it counts as worse."""

Other = float | str
"""A peer's figure in the row's unit, or the reason why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A row's target, in words, and whether it is met."""

    text: str
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. All figures are in `unit`; None stands for what there is not.

    `ours` is the median of what was measured, `worst` the worst of it; where `worst` is None, `ours` is one
    measurement, a count, or computed from other rows. `ratio` is what ours costs over what `over` costs: less
    is better whatever the unit. It is what is recorded and checked, for it says the same on any machine of a
    kind.
    """

    case: str
    name: str
    unit: str
    ours: float
    worst: float | None = None
    floor: float | None = None
    peers: Mapping[str, Other] = field(default_factory=dict)
    ratio: float
    over: str = "floor"
    target: Target | None = None
    tolerance: float = TOLERANCE
    remark: str = ""

    @property
    def key(self) -> str:
        """The name under which the row is recorded."""
        return f"{self.case}: {self.name}"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a case that is measured as a whole, and again as a whole if one of its rows looks worse."""

    case: str
    measure: Callable[[], list[Row]]
    name: str = ""

    def __str__(self) -> str:
        return f"{self.case} {self.name}".rstrip()


def at_most(limit: float, value: float, text: str) -> Target:
    """Return the target of a figure that must be small."""
    return Target(text=text, met=value <= limit)


def at_least(limit: float, value: float, text: str) -> Target:
    """Return the target of a figure that must be large."""
    return Target(text=text, met=value >= limit)
