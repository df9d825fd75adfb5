"""Recounts what a detector stores redundantly: sizes, numbers of uses, and what triggers what.

Answers rarely depend on these at once, so a mistake would be noticed late: as memory that is never freed, or
as an event that reaches rules unnecessarily.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from engine import Detector
from engine.evaluation.firings import at_most_once
from engine.evaluation.kernel.buckets.index import may_meet_several
from engine.evaluation.kernel.buckets.triggers import Holding, Range, Related
from engine.evaluation.kernel.indexing import families
from engine.evaluation.kernel.indexing.families import kin_of
from engine.evaluation.kernel.indexing.members import Members
from engine.evaluation.kernel.rule_set import (
    COMPUTED_NODES,
    ELEMENTS,
    PATTERN_NODES,
    RELATION_NODES,
    TEXT_TEST_NODES,
)
from engine.evaluation.key_sizes import key_bytes
from engine.evaluation.operators.counting.panes import PaneMinima, PaneSums
from engine.evaluation.operators.table import remembering
from engine.evaluation.operators.terms.past import LatestValue
from engine.evaluation.requirements import is_temporal, requirements_of
from engine.evaluation.slices.bounds.tracked import Keyed
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.readers import Reader
from engine.evaluation.slices.slices import (
    ENTRY_BYTES,
    FIRST,
    MORE,
    NUMBER,
    PLACE_BYTES,
    SEEN,
    SLICE_BYTES,
    Slice,
    Slices,
)
from engine.evaluation.stamps import EVENT
from engine.language.condition import Condition, Not, children, walk
from engine.language.nodes import ConditionNode
from engine.patterns.compiled_pattern import compile_pattern


def audit(detector: Detector) -> None:
    """Assert that all counts are right, between two events."""
    histories = detector.histories
    audit_sizes(histories)
    for path, slices in histories.slices.items():
        assert slices.path == path
        assert slices.memories, "slices go with their last memory"
        _audit_slices(slices, detector.events_seen)
    remembered = [one for slices in histories.slices.values() for one in slices.memories.values()]
    assert set(histories.memories.values()) == set(remembered)
    assert len(histories.memories) == len(remembered)
    _audit_rules(detector)
    _audit_index(detector)
    _audit_eviction(histories)
    acted = detector.at_most_once
    entries = Counter(int(key[0]) for key, _ in _by_key(acted))
    assert +acted._entries == entries
    assert acted.held_back.keys() <= {each.rule.priority for each in detector.live.values()}
    assert (
        entries.keys()
        <= acted._plans.keys()
        == {each.rule.priority for each in detector.live.values() if each.rule.acts_at_most_once}
    )


def audit_sizes(histories: Histories) -> None:
    """Assert that the number and size of the slices are right."""
    keyed = {path: slices for path, slices in histories.slices.items() if path}
    entries = [key for part in histories.besides for key, _ in _by_key(part)]
    assert histories.live == sum(map(len, keyed.values())) + len(entries)
    assert histories.keyed_bytes - sum(at_most_once.ENTRY_BYTES + key_bytes(key) for key in entries) == sum(
        SLICE_BYTES + key_bytes(key) + _bytes_of(slices, slice_)
        for slices in keyed.values()
        for key, slice_ in _by_key(slices)
    )
    unkeyed = histories.slices.get(())
    assert histories.unkeyed_bytes == (0 if unkeyed is None else _bytes_of(unkeyed, unkeyed.root))


def _by_key(slices: Keyed) -> Iterable[tuple[Any, Slice]]:
    for number, shard in enumerate(slices.shards):
        for key, slice_ in shard.items():
            assert hash(key) % len(slices.shards) == number
            yield key, slice_


def _bytes_of(slices: Slices, slice_: Slice) -> int:
    """Compute the size of a slice's contents anew."""
    records = sum(one.memory.bytes_of(entry) for one, entry in slices.held_in(slice_) if one.memory.is_record)
    return PLACE_BYTES * (len(slice_) - FIRST) + ENTRY_BYTES * len(slice_[MORE] or ()) + records


def _audit_slices(slices: Slices, events_seen: int) -> None:
    for place, one in slices.memories.items():
        assert (one.place, one.slices) == (place, slices)
    apart = {place for place, one in slices.memories.items() if not one.has_place}
    by_exception = {place: one for place, one in slices.memories.items() if one.memory.by_exception}
    assert slices.by_exception == by_exception
    placed = [place for place, one in by_exception.items() if one.has_place]
    assert sorted(slices._exceptions_placed) == sorted(placed)
    assert list(slices.held_in(slices.blank)) == [] or not slices.path
    for key, slice_ in _by_key(slices) if slices.path else [((), slices.root)]:
        assert len(slice_) == len(slices.blank), key
        assert set(slice_[MORE] or ()) <= apart
        assert slice_[SEEN] & EVENT <= events_seen
        for one, entry in slices.held_in(slice_):
            assert one.memory.bytes_of(entry) <= one.memory.bytes_max(one.keep)
            if isinstance(entry, PaneMinima):
                assert [pane for pane, _ in entry.minima] == sorted({pane for pane, _ in entry.minima})
                assert [least for _, least in entry.minima] == sorted({least for _, least in entry.minima})
                continue
            if isinstance(entry, PaneSums):
                older = entry.older or []
                assert [pane for pane, *_ in older] == sorted({pane for pane, *_ in older} - {entry.pane})
                assert entry.number == entry.count + sum(count for *_, count in older)
                continue
            stamps = (
                [*entry.values()] if isinstance(entry, dict) else entry if one.memory.is_record else [entry]
            )
            if isinstance(one.memory, LatestValue):
                stamps = entry[:1]
            assert stamps == sorted(stamps)
            assert one.memory.latest(entry) == stamps[-1]
            assert stamps[-1] & EVENT <= events_seen
            assert not slices.path or stamps[-1] <= slice_[SEEN]


def _audit_rules(detector: Detector) -> None:
    rules, histories = detector.rule_set, detector.histories
    live = [each for each in detector.live.values() if each.rule.enabled]
    sites = {each.rule.priority: (each.rule, each.births) for each in live}
    assert {priority: (rule, births) for priority, (rule, births, _) in rules.enabled.items()} == sites
    uses, readers = Counter[Any](), {one: Counter[Reader]() for one in histories.memories.values()}
    relations, bounds, nodes, dear = Counter[str](), Counter[Any](), 0, 0
    for rule, births in sites.values():
        parts = requirements_of(rule.condition, births)
        memories = tuple(histories.of(use.node, use.path, use.births.birth) for use in parts.memories)
        assert rules.enabled[rule.priority].memories == memories
        for one, (node, path, own, *_) in zip(memories, parts.memories, strict=True):
            operator = remembering(node)
            assert (one.memory, one.slices.path) == (operator.memory(node), path)
            assert one.keep >= operator.keep(node)
            inside = _nodes_in(one.memory.operands)
            nodes -= inside + isinstance(node, ConditionNode) - (not uses[one]) * (1 + inside)
            dear += 0 if uses[one] else one.memory.code_nodes
            uses[one] += 1
            readers[one][Reader(operator.window_us(node), own.born, operator.only_next)] += 1
        relations.update(parts.relations)
        nodes += sum(not isinstance(node, Not) for node, _ in walk(rule.condition))
        dear += PATTERN_NODES * len(parts.patterns) + TEXT_TEST_NODES * len(parts.text_tests)
        dear += ELEMENTS * parts.of_elements + COMPUTED_NODES * parts.computed
        dear += RELATION_NODES * parts.related
        for fact, pattern in parts.patterns | parts.text_tests:
            bounds[fact, compile_pattern(pattern, detector.limits).text_bytes_max] += 1
    assert {one: one._readers for one in readers} == readers
    assert all(one.born == min(born for _, born, _ in readers[one]) for one in readers)
    assert (rules.uses, rules.relations, rules._bounds) == (uses, relations, bounds)
    assert (rules.nodes, rules._extra_nodes) == (nodes, dear)
    assert rules._action_bytes == sum(each.rule.action_bytes_max for each in live)


def _nodes_in(conditions: Iterable[Condition]) -> int:
    """Count the nodes of conditions, without `not`, temporal nodes and everything that those observe."""
    return sum(
        (not isinstance(node, Not)) + _nodes_in(children(node))
        for node in conditions
        if not is_temporal(node)
    )


def _audit_index(detector: Detector) -> None:
    """Assert that each member is in the buckets of its triggers, and that nothing else is indexed."""
    memories = set(detector.histories.memories.values())
    members = detector.rule_set._members
    watched = {one for one in memories if one.bucket is not None}
    for slices in detector.histories.slices.values():
        assert slices.watched == {one.place: one for one in watched if one.slices is slices}
        runs = {one.place: one for one in memories if one.slices is slices and one.memory.begins}
        assert slices.runs == (runs if members else {})
    if members is None:
        assert not watched
        assert not any(one.commit for one in memories)
        assert not detector.rule_set.samples._families
        assert not any(slices.triggered for slices in detector.histories.slices.values())
        return
    assert members.memories.keys() == memories
    in_families = _audit_families(detector, members)
    rules = detector.rule_set.enabled.keys() - in_families
    large = {family.number for family in members.families.of_kin.values() if family.number is not None}
    assert members._members.keys() == {*rules, *large, *members.memories.values()}
    assert members._tests.keys() <= {one.slices for one in memories}
    assert not members.outcomes
    _audit_buckets(members, watched)


def _audit_families(detector: Detector, members: Members) -> set[int]:
    """Assert that each family has its rules in order. Return all rules in families."""
    expected: dict[Any, list[tuple[int, int, int]]] = {}
    for priority, (rule, births, memories) in detector.rule_set.enabled.items():
        parts = requirements_of(rule.condition, births)
        if (kin := kin_of(rule.condition, parts, memories)) is not None:
            expected.setdefault(kin.family, []).append((kin.rank, priority, kin.born))
    assert members.families.of_kin.keys() == expected.keys()
    large = set()
    found = set[int]()
    for name, family in members.families.of_kin.items():
        assert family.rules == sorted(expected[name])
        if family.number is None:
            assert len(family.rules) < families.LARGE_FROM
        else:
            assert members._members[family.number].what is family
            large.add(family.number)
            found.update(family.priorities())
    assert detector.rule_set.samples._families.keys() == large
    return found


def _audit_buckets(members: Members, watched: Iterable[Any]) -> None:
    index = members.index
    triggers = {number: member.triggers for number, member in members._members.items()}
    sizes = Counter[int]()
    for found in triggers.values():
        for trigger in (None,) if found is None else found:
            match trigger:
                case None:
                    sizes[id(index._always)] += 1
                case Holding(remembered):
                    sizes[id(remembered.bucket)] += 1
                case Range():
                    assert index._facts[trigger.fact].ranges
                case _:
                    sizes[id(index._bucket(trigger))] += 1
        for slices in {one.remembered.slices for one in found or () if isinstance(one, Holding)}:
            sizes[id(slices.triggered)] += 1
    buckets: list[Any] = [one.bucket for one in watched]
    buckets += [one.triggered for one in {one.slices for one in members.memories} if one.triggered]
    buckets += [index._always] if index._always.size else []
    for fact in index._facts.values():
        assert fact, "a fact without triggers is dropped"
        assert fact.ranges is None or fact.ranges
        buckets += fact.by_value.values()
        for kind, more in fact.more.items():
            assert more, "a kind without buckets is dropped"
            shapes = more._of_relation.values() if kind is Related else ()
            asked = [asking for of_relation in shapes for asking in of_relation.values()]
            for each in [one.buckets for one in asked] if kind is Related else [more]:
                buckets += each.values()
    assert {id(bucket): bucket.size for bucket in buckets if bucket.size} == sizes
    for bucket in buckets:
        rows = sum(len(group.rest) // group.width for group in bucket.groups.values())
        rows += sum(len(each) for shapes in bucket.several.values() for each in shapes.values())
        assert bucket.size == rows + len(bucket.pending)
        assert all(group.rest for group in bucket.groups.values())
        assert all(shapes and all(shapes.values()) for shapes in bucket.several.values())
    several = {number for number, found in triggers.items() if found and may_meet_several(found)}
    assert index.selected._rows.keys() | index.selected._pending.keys() == several
    assert not index.selected._rows.keys() & index.selected._pending.keys()


def _audit_eviction(histories: Histories) -> None:
    tracked = histories._tracked
    if not histories.tracking:
        assert not tracked
        assert not any(slices.touched for slices in (*histories.slices.values(), *histories.besides))
    besides = {part.path: part for part in histories.besides}
    for path, of_path in tracked.items():
        slices = besides[path] if path in besides else histories.slices[path]
        for key, slice_ in _by_key(slices):
            if hash(key) % len(slices.shards) < of_path._shards and key not in slices.touched:
                number = slice_[NUMBER]
                assert of_path._keys[number] == key
                assert of_path._seen[number] == slices.last_seen(slice_)
                assert of_path._until_us[number] == slices.first_until_us(slice_)
        expected = [min(column) for column in (of_path._until_us, of_path._seen) if column]
        found = [first for first, _ in (of_path.first_to_expire(), of_path.longest_unseen())]
        assert not expected or found == expected
