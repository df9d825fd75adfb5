"""Makes the parts of a detector's state by themselves, for tests that ask them directly."""

from engine.evaluation.times import Regime
from engine.evaluation.requirements import TRAITS
from engine.evaluation.state.slices import State
from engine.evaluation.state.storage.columns import Column, ColumnTable


class Bucket:
    """Stands for a bucket: the state only passes it on."""

    size = 1


def unbounded_state() -> State:
    """Give an empty state with room for any number of keys."""
    return State(1 << 40, 1 << 40, TRAITS)


def add_column(
    table: ColumnTable, regime: Regime, *, window_us: int | None = None, complete_at: int = 0
) -> Column:
    """Add an empty column to a table, as a memory that has a regime is added."""
    made = Column(table, window_us, complete_at)
    made.regime = regime
    table.columns.append(made)
    if made.clocked:
        table.add_clock(made)
    return made
