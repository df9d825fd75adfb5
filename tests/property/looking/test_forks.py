"""A fork continues exactly as its source would, and neither affects the other."""

import copy
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine import Detector, Limits
from engine.runtime.detector.persistence import detector_snapshot
from engine.runtime.detector.persistence.detector_snapshot import DetectorSnapshot, make_fork, take_snapshot
from snapshots.inspection import read_only
from tests.crash.model.memory_folders import FoldersDisk
from tests.differential.comparison import Pair
from tests.differential.modes import TRIED, in_mode
from tests.differential.timed import TimedPair
from tests.worlds.long_histories import LongHistoriesWorld
from tests.worlds.relations import Amend, Delete, RelationStep, RelationsWorld
from tests.worlds.scripts import Step, World
from tests.worlds.timed import BusyWorld, KeptWorld, TimedStep, TimedWorld

FOLDER = Path("/data/detectors/fork")


def opened(source: DetectorSnapshot) -> Detector:
    """The detector in the folder that was made for a fork."""
    disk = FoldersDisk()
    disk.make_folder(FOLDER.parent)
    make_fork(FOLDER, source, disk, is_due=False)
    snapshot = read_only(FOLDER, disk).snapshot
    assert snapshot is not None
    assert snapshot.sequence == 0
    return detector_snapshot.detector_from(snapshot.body, snapshot.version)


def fork_of(pair: Pair, source: DetectorSnapshot) -> Pair:
    """The fork of both, with the new ids of the engine's rules."""
    fork = Pair()
    fork.engine, fork.reference = opened(source), copy.deepcopy(pair.reference)
    ids = [rule.id for rule in fork.engine.rules()]
    rules = fork.reference.rules
    assert not rules.keys() & set(ids)
    fork.reference.rules = dict(zip(ids, rules.values(), strict=True))
    return fork


def drawn(world: type[World], choose: random.Random, steps: int) -> Iterator[Step]:
    return iter(world(choose.choice).script(steps_max=steps))


def apply(pair: Pair, step: Step | RelationStep) -> None:
    """Apply a step, unless its rule or relation is not in this detector."""
    if is_of(pair, step):
        pair.apply(step)


@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize(
    ("world", "count", "steps"),
    [(World, 20, 18), (LongHistoriesWorld, 10, 40), (RelationsWorld, 10, 40)],
    ids=["anything", "long histories", "stored relations"],
)
def test_a_fork_and_its_source_go_on_as_the_reference_says(
    world: type[World],
    count: int,
    steps: int,
    mode: str,
    examples: Callable[..., Iterator[random.Random]],
) -> None:
    for choose in examples(count, mode):
        with in_mode(mode):
            pair = Pair()
            for step in drawn(world, choose, steps):
                apply(pair, step)
            snapshot = take_snapshot(pair.engine)
            one, other = drawn(world, choose, steps), drawn(world, choose, steps)
            # Events that arrive while the folder is written are not in it.
            moment = copy.deepcopy(pair.reference)
            early = [step for step, _ in zip(one, range(3), strict=False)]
            for step in early:
                apply(pair, step)
            after, pair.reference = pair.reference, moment
            fork = fork_of(pair, snapshot)
            pair.reference = after
            for mine, its in zip(one, other, strict=False):
                apply(pair, mine)
                apply(fork, its)
            pair.compare_rules()
            fork.compare_rules()


def test_a_fork_keeps_priorities_sources_limits_and_what_is_disabled() -> None:
    source = Detector(limits=Limits(keys_max=7))
    for name, text in (("a", "once  x == 1  # kept"), ("b", "per user once x == 1"), ("c", "x == 1")):
        source.add_rule(name, text, notify=name == "b")
    source.remove_rule(source.rules()[0].id)
    source.add_rule("d", "once  x == 2  # kept too")
    source.change_rule(source.rules()[1].id, enabled=False)
    source.submit({"x": 1, "user": "ada"}, 5)
    fork = opened(take_snapshot(source))
    kept = ("name", "condition", "source", "priority", "enabled", "notify")
    of_rules = [[getattr(rule, name) for name in kept] for rule in source.rules()]
    assert [[getattr(rule, name) for name in kept] for rule in fork.rules()] == of_rules
    assert not {rule.id for rule in fork.rules()} & {rule.id for rule in source.rules()}
    assert fork.limits == source.limits
    assert (fork.clock_us, fork.events_seen) == (5000, 1)
    assert fork.rule(fork.add_rule("e", "x == 1")).priority == source.priority_highest + 1


def test_a_draft_is_one_of_the_rule_in_its_own_detector_and_goes_on_being_compared() -> None:
    source = Detector()
    live = source.add_rule("live", "x > 1")
    source.add_rule("draft", "x > 2", shadow=True, draft_of=live)
    for time_ms, x in enumerate((2, 3, 2)):
        source.submit({"x": x}, time_ms)
    fork = opened(take_snapshot(source))
    copied, draft = fork.rules()
    assert (draft.draft_of, draft.shadow) == (copied.id, True)
    for detector in (source, fork):
        detector.submit({"x": 2}, 9)
    counts = [found.counts for found in (source.comparison(live), fork.comparison(copied.id))]
    assert counts[0] == counts[1] == {"both": 1, "only_rule": 3, "only_draft": 0}


@pytest.mark.slow
@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize("world", [TimedWorld, BusyWorld, KeptWorld])
def test_a_fork_and_its_source_fire_by_time_as_the_reference_says(
    world: type[TimedWorld], mode: str, examples: Callable[..., Iterator[random.Random]]
) -> None:
    fired = 0
    for choose in examples(60, mode, until=lambda: fired):
        with in_mode(mode):
            script = world(choose.choice).script()
            pair, fork = TimedPair(), TimedPair()
            half = len(script) // 2
            for step in script[:half]:
                pair.play(step)
            copied = fork_of(pair, take_snapshot(pair.engine))
            fork.engine, fork.reference = copied.engine, copied.reference
            for number, step in enumerate(script[half:]):
                pair.play(step)
                # It takes other steps than its source.
                if number % 3 and is_of(fork, step):
                    fork.play(step)
            fired += len(fork.fired)


def is_of(pair: Pair, step: Step | RelationStep | TimedStep) -> bool:
    """Return whether a step concerns no rule and no relation, or one that exists."""
    if isinstance(step, Amend | Delete):
        return step.name in pair.reference.relations
    place = getattr(step, "place", None)
    return place is None or place < len(pair.reference.rules)
