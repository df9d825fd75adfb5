"""The memories, relations, patterns and literals that a rule requires of its detector."""

from functools import lru_cache
from typing import Final, NamedTuple

from engine.evaluation.memory import Kind, Recorded, Sharing, Traits, pane_us
from engine.evaluation.paths import Filter, Path, on
from engine.evaluation.plan import temporal
from engine.evaluation.plan.temporal import Operator
from engine.evaluation.plan.triggers import regime_of
from engine.language import condition as language
from engine.language.condition import Aggregate, Condition, Keyed, children, walk


class Requirements(NamedTuple):
    """The requirements of one condition."""

    size: int
    """The number of its nodes."""
    memories: tuple[tuple[Condition, Path], ...]
    """Each temporal node and its path, in the order of `walk`."""
    relations: frozenset[str]
    patterns: frozenset[tuple[str, str]]
    """Each pattern, after the fact that it is matched against."""
    literals: frozenset[tuple[str, str]]
    """Each text of a `contains`, after its fact."""


# Adding a rule asks twice, and a process often activates the same detectors again.
@lru_cache(64)
def requirements_of(condition: Condition, birth: int = 0, path: Path = ()) -> Requirements:
    """Return the requirements of a condition under a path, for rules of one birth."""
    nodes = list(walk(condition, ()))
    memories, relations, patterns, literals = [], set(), set(), set()
    for node, keys in nodes:
        match node:
            case language.InRelation():
                relations.add(node.relation)
            case language.Leaf(fact, "matches", value):
                patterns.add((fact, str(value)))
            case language.Leaf(fact, "contains", str() as value) if value:
                literals.add((fact, value))
            case language.Leaf():
                pass
            case _ if is_temporal(node):
                memories.append((node, (*path, *on(keys, birth))))
    return Requirements(
        len(nodes), tuple(memories), frozenset(relations), frozenset(patterns), frozenset(literals)
    )


def operands_of(node: Condition) -> dict[str, Condition]:
    """Return the operands of a temporal node, by their names in its operator."""
    names = ("left", "right") if isinstance(node, language.Since | language.SinceWithin) else ("inner",)
    return dict(zip(names, children(node), strict=True))


def temporal_depth(node: Condition) -> int:
    """Return how many temporal nodes are nested in one another at most, this one included."""
    if isinstance(node, Keyed) and node.where is not None:
        # The slices of inner are known only once `where` is.
        return temporal_depth(node.where) + temporal_depth(node.inner)
    return is_temporal(node) + max(map(temporal_depth, children(node)), default=0)


def path_depth(path: Path) -> int:
    """Return how many updates come one after another before the slices of an event are known."""
    return sum(temporal_depth(step.where) for step in path if isinstance(step, Filter))


def size_of(node: Condition) -> int:
    """Return the number of nodes of a temporal node, without temporal nodes inside it."""
    return 1 + sum(size_of(child) for child in children(node) if not is_temporal(child))


def is_temporal(node: Condition) -> bool:
    """Return whether a node has a memory."""
    return isinstance(node, Aggregate) or operator_of(node) is not None


RULE_STAGE: Final = 1 << 30
"""The stage at which rules are evaluated, after all updates that are not deferred."""


def update_stage(node: Condition, path: Path) -> int:
    """Return the stage at which an event updates the memory of a node. Stages run in ascending order.

    The stage is the length of the chain of updates up to this one. Deferred updates come after the rules,
    those of outer nodes before those of inner ones.
    """
    depth = path_depth(path) + temporal_depth(node)
    operator = operator_of(node)
    return 2 * RULE_STAGE - depth if operator is not None and operator.deferred else depth


_BY_TYPE: Final = {
    language.Once: temporal.ONCE,
    language.Historically: temporal.HISTORICALLY,
    language.Since: temporal.SINCE,
    language.OnceWithin: temporal.ONCE_WITHIN,
    language.HistoricallyFor: temporal.HISTORICALLY_FOR_WEAK,
    language.SinceWithin: temporal.SINCE_WITHIN,
    language.Previous: temporal.PREVIOUS,
    language.Earlier: temporal.EARLIER,
    language.EarlierWithin: temporal.EARLIER_WITHIN,
}
OPERATORS: Final = {one.name: one for one in (*_BY_TYPE.values(), temporal.HISTORICALLY_FOR_STRONG)}
"""All operators by name."""


def operator_of(node: Condition) -> Operator | None:
    """Return the temporal operator of a node, or None if it has none."""
    if isinstance(node, language.HistoricallyFor) and node.boundary == "strong":
        return temporal.HISTORICALLY_FOR_STRONG
    return _BY_TYPE.get(type(node))


def sharing_of(node: Condition) -> Sharing:
    """Tell when rules of different births can share one memory of a temporal node.

    A memory is viewed if it holds the times of the latest decisive events or the start of a run, and the
    operands have no memory.
    """
    if temporal_depth(node) > 1:
        return Sharing.NEVER if _settled_us(node) is None else Sharing.SETTLED
    return Sharing.EXPIRED if isinstance(node, language.Sum | language.Avg) else Sharing.VIEWED


def settling_us_of(node: Condition) -> int | None:
    """Return for how many microseconds after a birth the operands of a node may tell it from older ones.

    From then on, they are true for rules of all these births or for none. None if they may differ for ever.
    """
    settled = [_settled_us(child) for child in children(node)]
    return None if None in settled else max((each for each in settled if each is not None), default=0)


def _settled_us(node: Condition) -> int | None:
    """Return the same for a node: the longest sum of windows within one another."""
    if isinstance(node, Keyed) and node.where is not None and temporal_depth(node.where):
        # Each birth has slices of its own.
        return None
    settling_us = settling_us_of(node)
    if settling_us is None or not is_temporal(node):
        return settling_us
    # At any time, a slice may have its first event after a birth, and a run may have begun before it.
    window_us = None if run_us_of(node) is not None else expiry_of(node)
    return None if window_us is None else settling_us + window_us


def inner_of(node: Condition, path: Path, birth: int) -> tuple[tuple[Condition, Path], ...]:
    """Return the temporal nodes inside a temporal node under a path, for rules of one birth."""
    return requirements_of(node, birth, path).memories[1:]


def recorded_of(node: Condition) -> Recorded | None:
    """Return what the records of a node hold, or None if its memory is a time."""
    match node:
        case language.Count() | language.Distinct():
            kind = Kind.TIMES if isinstance(node, language.Count) else Kind.VALUES
            # The latest n tell whether there are n, and one more tells whether there are more than n.
            most = node.value if node.op in ("gte", "lt") else node.value + 1
            needed = {"gte": node.value, "eq": node.value, "gt": node.value + 1}.get(node.op, 1)
            return Recorded(kind, max(1, most), node.window_us, max(1, needed))
        case language.Sum():
            return Recorded(Kind.SUMS, 0, node.window_us)
        case language.Avg():
            return Recorded(Kind.MEANS, 0, node.window_us)
        case _:
            return None


def expiry_of(node: Condition) -> int | None:
    """Return the microseconds until the memory of a temporal node expires, or None if it never does."""
    if isinstance(node, Aggregate):
        window_us = node.window_us
        by_pane = isinstance(node, language.Sum | language.Avg)
        # The oldest pane counts whole.
        return window_us + pane_us(window_us) if window_us is not None and by_pane else window_us
    if run_us_of(node) is not None:
        # A longer run satisfies the window too, so its start never expires. Any run is long enough for a
        # window of 0, so its start never matters.
        return None if run_us_of(node) else -1
    return node.window_us if isinstance(node, language.Windowed) else None


def run_us_of(node: Condition) -> int | None:
    """Return the window of a node whose memory is the time at which a run started, else None."""
    return (
        node.window_us if isinstance(node, language.HistoricallyFor) and node.boundary == "strong" else None
    )


TRAITS: Final = Traits(expiry_of, regime_of, sharing_of, settling_us_of, inner_of, run_us_of, recorded_of)
"""What a State asks."""
