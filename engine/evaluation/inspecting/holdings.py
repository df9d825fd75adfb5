"""The contents of a detector: figures, and pages of its keys, memories and rules.

Each call is bounded, so that it delays events by at most a few milliseconds. Reading the keys of a large
detector takes several calls.
"""

from collections.abc import Callable, Hashable, Iterator
from heapq import heappush, heappushpop, nsmallest
from itertools import islice
from operator import itemgetter
from typing import Any, Final, NamedTuple

from engine.evaluation.detector import Detector
from engine.evaluation.facts.shown import shown
from engine.evaluation.facts.values import LONG_TEXT, scalar_of
from engine.evaluation.paths import Path, fact_of, order_of
from engine.evaluation.rule_book.changes.keeping import text_of
from engine.evaluation.rules import LiveRule
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.slices import ENTRY_BYTES, PLACE_BYTES, SEEN, Remembered, Slices
from engine.evaluation.stamps import EVENT, UNSET
from engine.evaluation.times import FOREVER, milliseconds
from engine.language.text.printer import format as format_condition

SLICES_AT_ONCE: Final = 4_096
RULES_AT_ONCE: Final = 2_000
"""The approximate maximum numbers of slices and of rules read in one call."""
PATHS_SHOWN: Final = 100
RELATIONS_SHOWN: Final = 100
USERS_SHOWN: Final = 20


def overview(detector: Detector) -> dict[str, Any]:
    """Return the figures of a detector."""
    histories, rule_set = detector.histories, detector.rule_set
    keyed = keyed_slices(histories)
    return {
        **({} if detector.clock_us is None else {"clock_ms": milliseconds(detector.clock_us)}),
        "events": detector.events_seen,
        "rules": {"total": len(detector.live), "enabled": len(rule_set.enabled)},
        "nodes": {"total": rule_set.nodes, "temporal": len(histories.memories)},
        "indexed": rule_set.indexed,
        "keys": {
            "live": histories.live,
            "max": histories.live_max,
            "paths": [{"per": _per(one.path), "live": len(one)} for one in keyed[:PATHS_SHOWN]],
        },
        "bytes": {"held": histories.bytes, "max": histories.bytes_max},
        "relations": {
            "total": len(detector.stored),
            "bytes": detector.relations_bytes,
            "bytes_max": detector.limits.relations_bytes_max,
            "stored": [one._asdict() for one in detector.relations()[:RELATIONS_SHOWN]],
        },
        "feed": {
            "newest": detector.feed.durable,
            "kept": len(detector.feed),
            "max": detector.limits.firings_max,
            "bytes": detector.feed.bytes,
        },
        "samples": rule_set.samples.events,
        "counted_since": _counted_since(detector),
    }


def _counted_since(detector: Detector) -> dict[str, Any]:
    """Return where the counts of firings begin: the number of events before, and the time of the last one."""
    event, clock_us = detector.verdicts.since
    return {"event": event, **({} if clock_us is None else {"clock_ms": milliseconds(clock_us)})}


# -- keys ---------------------------------------------------------------------------------------------------


class KeyPlace(NamedTuple):
    """Where reading keys continues: the number of a path, and of a shard of its slices or a key in it."""

    path: int = 0
    slot: int = 0


class SeenKey(NamedTuple):
    """A live key. Keys are sorted by their last event, the latest first."""

    event: int
    """The number of the last event that had the key."""
    path: int
    key: dict[str, Any]
    memories: int
    """The number of memories with an entry for it."""


def seen_keys(
    histories: Histories, prefix: str, before: tuple[int, int], limit: int, place: KeyPlace
) -> tuple[list[SeenKey], KeyPlace | None]:
    """Read some keys, from a place on. Return those seen most recently, and where to continue.

    `before` has the event and the path of the last key on the previous page. A key matches the prefix if the
    value of one of its facts starts with it.
    """
    keyed = keyed_slices(histories)
    if place.path >= len(keyed):
        return [], None
    slices = keyed[place.path]
    # Among keys seen at the same event, the one with the lower path comes first.
    end = before[0] + (place.path > before[1])
    latest: list[tuple[int, Hashable]] = []
    lowest, shard, read = -1, place.slot, 0
    while shard < len(slices.shards) and read < SLICES_AT_ONCE:
        read += len(slices.shards[shard])
        for key, slice_ in slices.shards[shard].items():
            event = slice_[SEEN] & EVENT
            if lowest < event < end and fits(slices, key, prefix):
                # An event has one key for a path, so keys are never compared.
                if len(latest) < limit:
                    heappush(latest, (event, key))
                else:
                    heappushpop(latest, (event, key))
                lowest = latest[0][0] if len(latest) == limit else -1
        shard += 1
    found = [
        seen_key(slices, place.path, key) for _, key in sorted(latest, key=lambda one: one[0], reverse=True)
    ]
    after = KeyPlace(place.path, shard) if shard < len(slices.shards) else KeyPlace(place.path + 1)
    return found, after if after.path < len(keyed) else None


RANK_BITS: Final = 48
"""A slot is the number of a shard and this many bits of the rank of a key in it. A shard has thousands of
keys, which rarely share a rank."""

_RANKS: Final = (1 << RANK_BITS) - 1


def listed_keys(
    histories: Histories, prefix: str, limit: int, place: KeyPlace
) -> tuple[list[SeenKey], KeyPlace | None]:
    """Read some live keys, from a place on. Return them, and where to continue.

    The order holds for this process only. A key matches the prefix if the value of one of its facts starts
    with it. All keys that stay alive are found, each once, whatever events come between two calls.
    """
    keyed = keyed_slices(histories)
    if place.path >= len(keyed):
        return [], None
    slices = keyed[place.path]
    found, slot = keys_from(slices, place.slot, prefix, limit=limit, tried_max=limit)
    after = KeyPlace(place.path + 1) if slot is None else KeyPlace(place.path, slot)
    return [seen_key(slices, place.path, key) for key in found], after if after.path < len(keyed) else None


def keys_from(
    slices: Slices,
    slot: int,
    prefix: str,
    *,
    limit: int,
    tried_max: int,
    is_listed: Callable[[Hashable], bool] = lambda _: True,
) -> tuple[list[Hashable], int | None]:
    """Return up to `limit` listed keys from a slot on, and the slot where to continue, if any.

    Tries at most `tried_max` keys that match the prefix.
    """
    found: list[Hashable] = []
    end, read = len(slices.shards) << RANK_BITS, 0
    while slot < end and read < SLICES_AT_ONCE and tried_max and len(found) < limit:
        read += len(slices.shards[slot >> RANK_BITS])
        following = _following(slices, slot, prefix, tried_max)
        next_shard = (slot >> RANK_BITS) + 1 << RANK_BITS
        slot = next_shard if len(following) < tried_max else following[-1][0] + 1
        for at, key in following:
            if len(found) == limit:
                slot = at
                break
            tried_max -= 1
            if is_listed(key):
                found.append(key)
    return found, slot if slot < end else None


def _following(slices: Slices, slot: int, prefix: str, count: int) -> list[tuple[int, Hashable]]:
    """Return the next keys of a shard from a slot on, each with its slot.

    The order depends only on the keys, so keys that come or go between two calls do not move others.
    """
    shard = slot >> RANK_BITS
    slots = [
        (shard << RANK_BITS | hash(repr(key)) & _RANKS, key)
        for key in slices.shards[shard]
        if fits(slices, key, prefix)
    ]
    return nsmallest(count, [one for one in slots if one[0] >= slot], key=itemgetter(0))


def keyed_slices(histories: Histories) -> list[Slices]:
    """Return the slices of each path with keys, in the same order in every process."""
    return sorted([one for path, one in histories.slices.items() if path], key=lambda one: order_of(one.path))


def seen_key(slices: Slices, path: int, key: Hashable) -> SeenKey:
    """Return a live key of the path with this number."""
    slice_ = slices.find(key)
    assert slice_ is not None, "the key is live"
    return SeenKey(slice_[SEEN] & EVENT, path, key_of(slices, key), sum(1 for _ in slices.held_in(slice_)))


def fits(slices: Slices, key: Hashable, prefix: str) -> bool:
    """Return whether the value of one of the facts of a key starts with a prefix."""
    return not prefix or any(_text(part).startswith(prefix) for part in _parts(slices, key))


def _parts(slices: Slices, key: Any) -> tuple[Any, ...]:
    return key if len(slices.path) > 1 else (key,)


def is_known(slices: Slices, key: Hashable) -> bool:
    """Return whether all values of a key are known, not only the digest of a long text."""
    return not any(map(_is_digest, _parts(slices, key)))


def key_of(slices: Slices, key: Hashable) -> dict[str, Any]:
    """Return the values of a key by fact."""
    parts = _parts(slices, key)
    return {fact_of(step): _value(part) for step, part in zip(slices.path, parts, strict=True)}


def _value(part: Any) -> Any:
    """Return the value of a part of a key; of a long text, its digest."""
    if _is_digest(part):
        return f"SHA-256 {part[1]}"
    return shown(scalar_of(part)).value


def _is_digest(part: Any) -> bool:
    return type(part) is tuple and part[0] == LONG_TEXT


def _text(part: Any) -> str:
    return part if type(part) is str else str(_value(part))


# -- memories -----------------------------------------------------------------------------------------------


def memories(detector: Detector, after: int, limit: int) -> list[dict[str, Any]]:
    """Return a page of memories after the first `after`, and the rules that read each.

    Each has the text of the first node that reads it. The numbers of entries and bytes are extrapolated from
    about SLICES_AT_ONCE keys. Only the first RULES_AT_ONCE rules are searched for readers.
    """
    rule_set = detector.rule_set
    page = list(islice(detector.histories.memories.values(), after, after + limit))
    users = {remembered: list[str]() for remembered in page}
    for enabled in islice(rule_set.enabled.values(), RULES_AT_ONCE):
        for remembered in dict.fromkeys(enabled.memories):
            of_memory = users.get(remembered)
            if of_memory is not None and len(of_memory) < USERS_SHOWN:
                of_memory.append(enabled.rule.id)
    return [
        {
            "text": text_of(remembered.node),
            "per": _per(remembered.slices.path),
            "since_event": remembered.born & EVENT,
            **_held(remembered),
            "uses": rule_set.uses[remembered],
            "ruleIds": users[remembered],
        }
        for remembered in page
    ]


def _held(remembered: Remembered) -> dict[str, int]:
    """Return the number of keys with an entry in a memory (without keys, 0 or 1), and its bytes."""
    slices, memory = remembered.slices, remembered.memory
    read = entries = size = 0
    shards = [shard.values() for shard in slices.shards] if slices.path else [[slices.root]]
    for some in shards:
        for slice_ in some:
            entry = slices.entry_in(slice_, remembered)
            if entry not in (remembered.blank, UNSET):
                entries += 1
                size += memory.bytes_of(entry) + (PLACE_BYTES if remembered.has_place else ENTRY_BYTES)
        read += len(some)
        if read >= SLICES_AT_ONCE:
            break
    if slices.path and read < len(slices):
        entries, size = round(entries * len(slices) / read), round(size * len(slices) / read)
    return {"entries": entries, "bytes": size}


def _per(path: Path) -> list[str]:
    return [
        step if isinstance(step, str) else f"{step.fact} where {format_condition(step.where)}"
        for step in path
    ]


# -- rules --------------------------------------------------------------------------------------------------


SHARE_UNITS: Final = 10**15
"""Shares of time are compared as integers in this unit, so that a text can represent one exactly."""


def rules(detector: Detector, prefix: str, after: int, limit: int) -> tuple[list[dict[str, Any]], int | None]:
    """Return rules after a priority whose names have a prefix, with their costs, and where to continue."""
    looked_at, place = _look(detector, after)
    fitting = [live for live in looked_at if live.rule.name.startswith(prefix)]
    costs = _Costs(detector)
    page = [costs.document(live) for live in fitting[:limit]]
    if len(fitting) >= limit:
        return page, page[-1]["priority"]
    return page, place


def costliest(
    detector: Detector, prefix: str, before: tuple[int, int], limit: int, after: int
) -> tuple[list[tuple[int, int, dict[str, Any]]], int | None]:
    """Read some rules after a priority. Return the costliest of them, and where to continue.

    Each has its share of the time, in SHARE_UNITS, and its priority. `before` has those of the last rule on
    the previous page.
    """
    looked_at, place = _look(detector, after)
    costs = _Costs(detector)
    following = []
    for live in looked_at:
        rank = round((costs.time_share(live) or 0.0) * SHARE_UNITS), live.rule.priority
        if (-rank[0], rank[1]) > (-before[0], before[1]) and live.rule.name.startswith(prefix):
            following.append((*rank, live))
    # Rules with equal shares stay in order of priority.
    most = nsmallest(limit, following, key=lambda one: -one[0])
    return [(share, priority, costs.document(live)) for share, priority, live in most], place


def _look(detector: Detector, after: int) -> tuple[list[LiveRule], int | None]:
    """Return the rules after a priority that one call reads, and the last priority if more may follow."""
    following = (live for live in detector.live.values() if live.rule.priority > after)
    found = list(islice(following, RULES_AT_ONCE))
    return found, found[-1].rule.priority if len(found) == RULES_AT_ONCE else None


class _Costs:
    """The cost of each rule at the time of one call."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._indexed, self._samples = detector.rule_set.indexed, detector.rule_set.samples
        self._total_ns = sum(self._samples.time_ns.values()) if self._indexed else _estimated_ns(detector)

    def time_share(self, live: LiveRule) -> float | None:
        """Return a rule's share of the time; None if it is disabled, or before the first sample."""
        if not live.rule.enabled or not self._total_ns:
            return None
        return min(1.0, self._detector.rule_set.time_ns(live.rule.priority) / self._total_ns)

    def document(self, live: LiveRule) -> dict[str, Any]:
        """Return a rule with its costs, as plain data."""
        time_share = self.time_share(live)
        held_back = self._detector.at_most_once.held_back[live.rule.priority]
        return {
            "ruleId": live.rule.id,
            "name": live.rule.name,
            "priority": live.rule.priority,
            "enabled": live.rule.enabled,
            "since_event": live.birth,
            **({"shadow": True} if live.rule.shadow else {}),
            "times_true": self._detector.verdicts.times_fired(live.rule.priority),
            **({"held_back": held_back} if held_back else {}),
            **dict(self._evaluated(live)),
            **({} if time_share is None else {"time_share": time_share}),
        }

    def _evaluated(self, live: LiveRule) -> Iterator[tuple[str, float]]:
        if not live.rule.enabled:
            return
        if not self._indexed:
            yield "evaluated_share", 1.0
        elif self._samples.events:
            yield "evaluated_share", self._samples.ran[live.rule.priority] / self._samples.events


def _estimated_ns(detector: Detector) -> float:
    """Return the estimated time of an event while rules are not indexed, when they are few."""
    return sum(map(detector.rule_set.time_ns, detector.rule_set.enabled))


FIRST: Final = (FOREVER, -1)
"""The value of `before` for the first page of keys, and of rules by cost."""
