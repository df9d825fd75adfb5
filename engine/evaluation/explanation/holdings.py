"""What a detector holds: the whole in numbers, and pages of its keys, its memories and its rules.

Each look is bounded, so that it delays no event by more than a few milliseconds: the keys of a large detector
are read in several looks, one after another.
"""

from collections.abc import Iterator
from heapq import heappush, heappushpop
from itertools import islice
from typing import Any, Final, NamedTuple

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.document import milliseconds
from engine.evaluation.explanation.shown import shown
from engine.evaluation.facts.values import LONG_TEXT, scalar_of
from engine.evaluation.memory import FOREVER, NEVER
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.rules import LiveRule
from engine.evaluation.state.slices import NodeName, State
from engine.evaluation.state.tables import KeyTable
from engine.evaluation.state.views import Store
from engine.language.text.printer import format as format_condition

SLOTS_AT_ONCE: Final = 4_096
RULES_AT_ONCE: Final = 2_000
"""The most slots, and rules, that are read in one look."""
PATHS_SHOWN: Final = 100
USERS_SHOWN: Final = 20


def overview(detector: Detector) -> dict[str, Any]:
    """Return the detector in numbers."""
    state, rule_set = detector.state, detector.rule_set
    tables = _tables(state)
    return {
        **({} if detector.clock_us is None else {"clock_ms": milliseconds(detector.clock_us)}),
        "events": detector.events_seen,
        "rules": {"total": len(detector.live), "enabled": len(rule_set.programs)},
        "nodes": {"total": rule_set.nodes, "temporal": len(state.stores)},
        "indexed": state.indexed,
        "keys": {
            "live": state.live,
            "max": state.live_max,
            "paths": [{"per": _per(table.path), "live": table.live} for table in tables[:PATHS_SHOWN]],
        },
        "bytes": {"held": state.bytes, "max": state.bytes_max},
        "samples": rule_set.samples.events,
    }


# -- keys ---------------------------------------------------------------------------------------------------


class KeyPlace(NamedTuple):
    """Where a look at the keys goes on: the number of a path and a slot."""

    path: int = 0
    slot: int = 0


class SeenKey(NamedTuple):
    """A live key, in the order of when it was seen: that which was seen last comes first."""

    event: int
    """The number of the last event that had the key."""
    path: int
    key: dict[str, Any]
    memories: int
    """How many memories hold something for it."""


def seen_keys(
    state: State, prefix: str, before: tuple[int, int], limit: int, place: KeyPlace
) -> tuple[list[SeenKey], KeyPlace | None]:
    """Return the keys that were seen last, of those from a place on that one look reads, and the next place.

    `before` has the event and path of the last key of the page before. A key fits the prefix if the value of
    one of its facts begins so.
    """
    tables = _tables(state)
    if place.path >= len(tables):
        return [], None
    table = tables[place.path]
    # Of keys seen at one event, that of the lower path comes first.
    end = before[0] + (place.path > before[1])
    latest: list[tuple[int, int]] = []
    lowest = -1
    last = min(len(table.keys), place.slot + SLOTS_AT_ONCE)
    for slot, event in enumerate(table.seen[place.slot : last], place.slot):
        # The last event of a free slot is FOREVER.
        if lowest < event < end and _fits(table, slot, prefix):
            if len(latest) < limit:
                heappush(latest, (event, slot))
            else:
                heappushpop(latest, (event, slot))
            lowest = latest[0][0] if len(latest) == limit else -1
    found = [
        SeenKey(event, place.path, _key(table, slot), table.held[slot])
        for event, slot in sorted(latest, reverse=True)
    ]
    after = KeyPlace(place.path, last) if last < len(table.keys) else KeyPlace(place.path + 1)
    return found, after if after.path < len(tables) else None


def _tables(state: State) -> list[KeyTable]:
    return sorted(state.tables.values(), key=lambda table: table.order)


def _fits(table: KeyTable, slot: int, prefix: str) -> bool:
    return not prefix or any(_text(part).startswith(prefix) for part in _parts(table, slot))


def _parts(table: KeyTable, slot: int) -> tuple[Any, ...]:
    key = table.keys[slot]
    assert key is not None, "the slot is taken"
    return key if len(table.path) > 1 else (key,)


def _key(table: KeyTable, slot: int) -> dict[str, Any]:
    parts = _parts(table, slot)
    return {fact_of(step): _value(part) for step, part in zip(table.path, parts, strict=True)}


def _value(part: Any) -> Any:
    """Return the value of a key, of a long text only its digest."""
    if type(part) is tuple and part[0] == LONG_TEXT:
        return f"SHA-256 {part[1]}"
    return shown(scalar_of(part)).value


def _text(part: Any) -> str:
    return part if type(part) is str else str(_value(part))


# -- memories -----------------------------------------------------------------------------------------------


def memories(detector: Detector, after: int, limit: int) -> list[dict[str, Any]]:
    """Return the memories of distinct temporal nodes behind the first so many, with the rules that read them.

    Rules are searched for among the first RULES_AT_ONCE.
    """
    state = detector.state
    page = list(islice(state.stores.items(), after, after + limit))
    users: dict[NodeName, list[str]] = {name: [] for name, _ in page}
    for program in islice(detector.rule_set.programs.values(), RULES_AT_ONCE):
        for name in program.memories:
            of_memory = users.get(state.memory_of(name))
            if of_memory is not None and len(of_memory) < USERS_SHOWN:
                of_memory.append(program.rule.id)
    return [
        {
            "text": format_condition(name.condition),
            "per": _per(name.path),
            "since_event": name.birth,
            "entries": _entries(state, store),
            "uses": state.users[name],
            "ruleIds": users[name],
        }
        for name, store in page
    ]


def _entries(state: State, store: Store) -> int:
    """Return for how many keys a memory holds something; without keys, 1 if it does."""
    return int(state.whole.cells[store] != NEVER) if isinstance(store, int) else store.held


def _per(path: Path) -> list[str]:
    return [
        step if isinstance(step, str) else f"{step.fact} where {format_condition(step.where)}"
        for step in path
    ]


# -- rules --------------------------------------------------------------------------------------------------


def rules(detector: Detector, prefix: str, after: int, limit: int) -> tuple[list[dict[str, Any]], int | None]:
    """Return the rules behind a priority whose names begin so, with what they cost, and where to go on."""
    rule_set = detector.rule_set
    indexed, samples = detector.state.indexed, rule_set.samples
    total_ns = sum(samples.time_ns.values()) if indexed else _estimated_ns(detector)

    def cost(live: LiveRule) -> Iterator[tuple[str, Any]]:
        priority = live.rule.priority
        yield "times_true", detector.verdicts.times_fired(priority)
        if not live.rule.enabled:
            return
        if not indexed:
            yield "evaluated_share", 1.0
        elif samples.events:
            yield "evaluated_share", samples.ran[priority] / samples.events
        if total_ns:
            yield "time_share", min(1.0, rule_set.time_ns(priority) / total_ns)

    behind = (live for live in detector.live.values() if live.rule.priority > after)
    looked_at = list(islice(behind, RULES_AT_ONCE))
    fitting = list(islice((live for live in looked_at if live.rule.name.startswith(prefix)), limit))
    page = [
        {
            "ruleId": live.rule.id,
            "name": live.rule.name,
            "priority": live.rule.priority,
            "enabled": live.rule.enabled,
            "since_event": live.birth,
            **dict(cost(live)),
        }
        for live in fitting
    ]
    if len(fitting) == limit:
        return page, fitting[-1].rule.priority
    return page, looked_at[-1].rule.priority if len(looked_at) == RULES_AT_ONCE else None


def _estimated_ns(detector: Detector) -> float:
    """Return the estimated time of an event while rules are not indexed: they are few then."""
    return sum(map(detector.rule_set.time_ns, detector.rule_set.programs))


FIRST: Final = (FOREVER, -1)
"""What `before` is for the first page of keys."""
