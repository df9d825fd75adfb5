"""Modes in which the engine takes its shortcuts from the first rule, key and event on, not only at scale."""

import contextlib
from collections.abc import Iterator

import pytest

from engine.evaluation.dispatch import combinations, rule_set
from engine.evaluation.dispatch.compilation import fused_stream, memory_access
from engine.evaluation.dispatch.indexing import indexed_stream
from engine.evaluation.kernel.selection import ranges
from engine.evaluation.facts import lookups
from engine.evaluation.plan import codegen
from engine.evaluation.state import slices
from engine.evaluation.state.removal import incremental_expiry
from engine.evaluation.state.storage import columns, records
from engine.evaluation.state.storage.slots import triggering
from tests.differential import fused

LOOKED_UP = (
    (codegen, "WALKED_MAX", -1),
    (lookups, "WALKED_MAX", -1),
    (lookups, "SEARCHED_APART_MAX", 0),
    (lookups, "SEARCHED_CHARS_MAX", 0),
    (indexed_stream, "VISITED_ALL_MAX", 0),
)
"""Values of any size are treated as large ones are."""

UNITED = (
    (triggering, "UNITED_FROM", 1),
    (triggering, "CALM_EVENTS", 0),
    (triggering, "COUNTED_FOR", 1),
    (triggering, "DENSE_SHARE", 0.0),
)
"""All buckets of memories are united at the first event, and all paged memories count as dense."""

MODES = {
    "fused": (),
    "indexed": ((rule_set, "index_pays", fused.up_to(0)), (ranges, "FEW_MAX", 0)),
    "becoming indexed": (
        (rule_set, "index_pays", fused.up_to(1)),
        (ranges, "FEW_MAX", 2),
        (triggering, "UNITED_FROM", 2),
        (triggering, "CALM_EVENTS", 1),
    ),
    "in turns": ((rule_set, "index_pays", fused.in_turns),),
    "in turns, in pages": (
        (rule_set, "index_pays", fused.in_turns),
        (columns, "PAGED_FROM", 1),
        (columns, "SPARSE_SHARE", 1 << 62),
        (records, "IN_ROW_MAX", 2),
    ),
    "indexed, in pages, looked up": (
        *LOOKED_UP,
        *UNITED,
        (rule_set, "index_pays", fused.up_to(0)),
        (columns, "PAGED_FROM", 1),
        (columns, "SPARSE_SHARE", 1 << 62),
    ),
    "indexed, tidied at every event": (
        *UNITED,
        (rule_set, "index_pays", fused.up_to(0)),
        (fused_stream, "SETTLE_EVERY", 1),
        (indexed_stream, "SETTLE_EVERY", 1),
        (slices, "SWEPT_FROM", 0),
        (slices, "SETTLE_EVERY", 1),
        (incremental_expiry, "SHRUNK_FROM", 0),
        (combinations, "KEPT_MAX", 1),
    ),
    "fused, tidied at every event, looked up": (
        *LOOKED_UP,
        (memory_access, "TESTED_ONCE_FROM", 1),
        (combinations, "KEPT_MAX", 1),
        (fused_stream, "SETTLE_EVERY", 1),
        (indexed_stream, "SETTLE_EVERY", 1),
        (slices, "SWEPT_FROM", 0),
        (slices, "SETTLE_EVERY", 1),
        (incremental_expiry, "SHRUNK_FROM", 0),
    ),
}


@contextlib.contextmanager
def in_mode(mode: str) -> Iterator[None]:
    """Let the engine work in one of the modes, for as long as the context lasts."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in MODES[mode]:
            patch.setattr(module, name, value)
        _forget_compiled()
        try:
            yield
        finally:
            _forget_compiled()


def _forget_compiled() -> None:
    """Have equal rules compiled again: their code depends on the mode."""
    fused_stream.fuse_few.cache_clear()
    fused_stream.fuse_many.cache_clear()
