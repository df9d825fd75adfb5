"""Modes in which the engine takes its shortcuts from the first rule, key and event on, not only at scale."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from engine.evaluation.facts import lookups
from engine.evaluation.kernel import rule_set, stream
from engine.evaluation.kernel.buckets import ranges, related
from engine.evaluation.kernel.code import predicates, uses
from engine.evaluation.kernel.indexing import families, indexed_stream
from engine.evaluation.slices import slices
from engine.evaluation.slices.bounds import eviction
from engine.evaluation.timed import table
from engine.patterns import fact_patterns
from tests.thoroughness import tried


def up_to(nodes: int) -> tuple[tuple[Any, str, int], ...]:
    """Index rules with more nodes than these."""
    return (rule_set, "INDEXED_FROM", nodes + 1), (rule_set, "FUSED_BELOW", nodes + 1)


def index_from(patch: pytest.MonkeyPatch, nodes: int) -> None:
    """Index rules with at least this many nodes, and no others, from the next change of the rules on."""
    for module, name, value in up_to(nodes - 1):
        patch.setattr(module, name, value)


def in_turns(self: rule_set.RuleSet, *, indexed: bool | None = None) -> None:
    """Replace `RuleSet.choose`: each change of a rule changes how rules are evaluated."""
    _choose(self, indexed=not self.indexed if indexed is None else indexed)


_choose = rule_set.RuleSet.choose

FAMILIES = ((families, "LARGE_FROM", 2),)
INDEXED = (*up_to(-1), (ranges, "FEW_MAX", 0), *FAMILIES)
IN_TURNS = ((related, "FEW_MAX", 2), (rule_set.RuleSet, "choose", in_turns), *FAMILIES)

LOOKED_UP = (
    (predicates, "WALKED_MAX", -1),
    (predicates, "NARROWED_MIN", 0),
    (lookups, "WALKS_MAX", 0),
    (fact_patterns, "WALKS_MAX", 0),
    (lookups, "WALKED_MAX", -1),
    (lookups, "SEARCHED_APART_MAX", 0),
    (lookups, "SEARCHED_CHARS_MAX", 0),
    (indexed_stream, "VISITED_ALL_MAX", 0),
)
"""Treat values of any size like large ones."""

SWEPT = (
    (eviction, "SWEPT_FROM", -1),
    *((module, "SHARDS", 1) for module in (slices, table)),
    (eviction, "LOOKED_EVERY", 1),
    *((module, "SETTLED_EVERY", 1) for module in (eviction, stream, indexed_stream)),
    (stream, "KEPT_MAX", 1),
)
"""Check for expired slices at every event."""

FEW_PLACES = ((slices, "PLACES_MAX", slices.FIRST + 2),)
NO_PLACES = ((slices, "PLACES_MAX", 0),)

MODES: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "fused": up_to(1 << 62),
    "indexed": INDEXED,
    "becoming indexed": (*up_to(8), (ranges, "FEW_MAX", 2), (families, "LARGE_FROM", 3)),
    "in turns": IN_TURNS,
    "in turns, without places": (*IN_TURNS, *NO_PLACES),
    "indexed, with few places, looked up": (*INDEXED, *FEW_PLACES, *LOOKED_UP),
    "indexed, swept at every event": (*INDEXED, *SWEPT),
    "fused, swept at every event, looked up": (
        *up_to(1 << 62),
        *FEW_PLACES,
        *LOOKED_UP,
        *SWEPT,
        (uses, "DECIDED_ONCE_FROM", 1),
    ),
}

TRIED = tried(MODES, 2)
"""Return the modes that this run tries."""


@contextlib.contextmanager
def in_mode(mode: str) -> Iterator[None]:
    """Make the engine work in one of the modes within the context."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in MODES[mode]:
            patch.setattr(module, name, value)
        yield
