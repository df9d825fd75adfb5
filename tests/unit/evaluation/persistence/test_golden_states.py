"""Detectors that earlier versions saved go on: `tests/data/golden/states.py` made their snapshots."""

import json
import lzma
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from engine import Detector
from engine.evaluation.persistence import saved
from engine.evaluation.persistence.figures import load_figures
from engine.language.json.writer import condition_to_document
from engine.language.limits import DEFAULT_LIMITS
from engine.language.validation.document import condition_from_document
from tests.data.golden.states import HERE, acting, happen, more
from tests.differential.modes import in_mode
from tests.thoroughness import WHOLE
from tests.worlds.scripts import Add, Change, Remove, Step, Submit
from tests.worlds.timed import Tick

VERSIONS = {7, 8, 9, 10, 13}
GOES_ON = ("fused", "indexed", "in turns, without places")
"""Each of these modes loads a third of the documents."""


@cache
def cases() -> list[list[Any]]:
    return [
        case
        for path in sorted(HERE.glob("states_*.msgpack.xz"))
        for case in saved.unpack(lzma.decompress(path.read_bytes()))
    ]


def loaded(version: int, data: bytes) -> Detector:
    detector, document = Detector(), saved.unpack(data)
    saved.load(detector, document, version)
    load_figures(detector, document)
    return detector


def reloaded(detector: Detector) -> Detector:
    return Detector.load(detector.dump(), Detector.STATE_VERSION, limits=detector.limits)


def steps_in(document: list[list[Any]]) -> Iterator[Step | Tick]:
    for kind, *parts in document:
        match kind:
            case "add":
                name, condition, notify = parts
                yield Add(name, condition_from_document(condition, DEFAULT_LIMITS), notify)
            case "change":
                place, changes = parts
                if "condition" in changes:
                    condition = condition_from_document(changes["condition"], DEFAULT_LIMITS)
                    changes = {"condition": condition}
                yield Change(place, changes)
            case "remove":
                yield Remove(*parts)
            case "tick":
                yield Tick(*parts)
            case _:
                yield Submit(*parts)


def rules_in(detector: Detector) -> list[list[Any]]:
    """Return the rules as the golden file has them."""
    found = []
    for rule in detector.rules():
        birth, fired = detector.live[rule.id].birth, detector.verdicts.times_fired(rule.priority)
        kind = (rule.enabled, rule.notify, rule.source, rule.shadow, rule.draft_of)
        found.append([rule.name, condition_to_document(rule.condition), *kind, birth, fired])
    return found


def went_on(
    detector: Detector, steps: list[list[Any]], *, saved_every: int = 0
) -> tuple[Detector, list[Any]]:
    """Return the detector after further steps, and the answers to their events and ticks."""
    answers = []
    for number, step in enumerate(steps_in(steps), 1):
        answer = happen(detector, step)
        if isinstance(step, Submit | Tick):
            answers.append(answer)
        if saved_every and not number % saved_every:
            detector = reloaded(detector)
    return detector, answers


@pytest.mark.slow
@pytest.mark.parametrize("mode", GOES_ON)
def test_a_detector_of_an_earlier_version_has_lost_nothing_and_goes_on(
    mode: str, seed: int, scaled: Callable[[int], int]
) -> None:
    documents = range(GOES_ON.index(mode), len(cases()), len(GOES_ON))
    with in_mode(mode):
        # Most of them in a whole run.
        count = scaled((10 if WHOLE else 2) * len(documents))
        for number in random.Random(seed).sample(documents, min(len(documents), count)):
            name, version, document, text = cases()[number]
            rules, counts, steps, answers, *since_13 = json.loads(text)
            detector = loaded(version, document)
            assert rules_in(detector) == rules, name
            assert [one.dump() for one in detector.shadows.comparisons.values()] == counts, name
            assert not since_13 or [more(detector), acting(detector)] == since_13[:2], name
            # Some are saved again meanwhile.
            after, told = went_on(detector, steps, saved_every=9 if number % 4 > 1 else 0)
            assert told == answers, name
            assert not since_13 or acting(after) == since_13[2], name


def test_there_is_a_document_of_every_version_that_is_read_and_of_both_ways_of_dispatch() -> None:
    assert {version for _, version, *_ in cases()} == VERSIONS
    assert {saved.unpack(document)["indexed"] for _, _, document, _ in cases()} == {False, True}
