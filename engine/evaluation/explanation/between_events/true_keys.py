"""The keys for which a rule is true now: whose standing verdict is true."""

from typing import Any, Final

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.between_events.holdings import (
    SLOTS_AT_ONCE,
    KeyPlace,
    SeenKey,
    fits,
    is_known,
    key_at,
)
from engine.evaluation.explanation.between_events.standing import keys_of, standing_node
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.requirements import requirements_of
from engine.evaluation.rules import LiveRule
from engine.evaluation.state.storage.columns import ColumnTable
from engine.evaluation.state.storage.pages import NO_SLOT
from engine.language.diagnostics import Entry, Refusal, quoted

NODES_AT_ONCE: Final = 200
"""About the most nodes that are explained in one call, which takes some milliseconds."""


def true_keys(
    detector: Detector, rule_id: str, prefix: str, limit: int, place: KeyPlace
) -> tuple[list[SeenKey], KeyPlace | None]:
    """Read some live keys of a rule, from a place on.

    Return those for which it is true, in the order in which they are stored, and where to continue. A key has
    the prefix if the value of one of its facts begins with it. Keys of which only a digest is known are left
    out. Raises Refusal 1201 for an unknown rule, and 1400 if nothing is remembered for all its keys together.
    """
    detector.rule(rule_id)
    live = detector.live[rule_id]
    names = [*dict.fromkeys(keys_of(live.rule.condition))]
    if not live.rule.enabled:
        return [], None
    if not names:
        stands = standing_node(detector, live, {}).verdict
        return [SeenKey(detector.events_seen, 0, {}, 0)] if stands else [], None
    paths = _paths_of(live, names)
    if not paths:
        said = f"nothing is remembered for values of {', '.join(map(quoted, names))} together"
        raise Refusal(Entry(1400, f"the keys for which the rule is true cannot be listed: {said}"))
    if place.path >= len(paths):
        return [], None
    tables = [detector.state.tables[path] for path in paths[: place.path + 1]]
    table = tables.pop()
    left = max(1, NODES_AT_ONCE // requirements_of(live.rule.condition).size)
    found: list[SeenKey] = []
    slot = place.slot
    last = min(len(table.keys), slot + SLOTS_AT_ONCE)
    while slot < last and left and len(found) < limit:
        if is_known(table, slot) and fits(table, slot, prefix):
            key = key_at(table, slot)
            if not any(_has(other, key) for other in tables):
                left -= 1
                if standing_node(detector, live, key).verdict:
                    found.append(SeenKey(table.seen[slot], place.path, key, table.held[slot]))
        slot += 1
    after = KeyPlace(place.path, slot) if slot < len(table.keys) else KeyPlace(place.path + 1)
    return found, after if after.path < len(paths) else None


def _paths_of(live: LiveRule, names: list[str]) -> list[Path]:
    """Return the paths of a rule's memories that have all its keys and no others."""
    parts = requirements_of(live.rule.condition, live.birth)
    paths = dict.fromkeys(path for _, path in parts.memories)
    return [path for path in paths if {*map(fact_of, path)} == set(names)]


def _has(table: ColumnTable, key: dict[str, Any]) -> bool:
    sent = {name[1:]: value for name, value in key.items() if name.startswith("$")}
    return table.slot_at(key, sent) != NO_SLOT
