"""Changes that keep histories: the engine agrees with the reference, in each mode and after a reload."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine import Detector
from engine.evaluation.explanation.explaining import explain
from engine.evaluation.rule_book.changes import keeping
from engine.language.condition import Keyed
from tests.audit import audit
from tests.differential.comparison import Pair, disagreement, evaluated, explained
from tests.differential.modes import TRIED, in_mode
from tests.worlds.kept_histories import AgedWorld, CountingWorld, KeepingWorld
from tests.worlds.scripts import Step, Submit

Examples = Callable[..., Iterator[random.Random]]

WORLDS = (KeepingWorld, CountingWorld, AgedWorld)


@pytest.mark.slow
@pytest.mark.parametrize("mode", TRIED)
def test_what_a_change_keeps_is_what_the_reference_keeps(mode: str, examples: Examples) -> None:
    with in_mode(mode):
        for chance in examples(1_000):
            script = chance.choice(WORLDS)(chance.choice).script()
            assert disagreement(script) is None, explained(script)


@pytest.mark.slow
def test_a_detector_goes_on_with_kept_histories_after_a_reload_and_explains_them(examples: Examples) -> None:
    for chance in examples(300):
        pair = Pair()
        for step in chance.choice(WORLDS)(chance.choice).script():
            explained_as_evaluated(pair, step)
            pair.apply(step)
            if chance.random() < 0.2:
                pair.reload()
            audit(pair.engine)


def explained_as_evaluated(pair: Pair, step: Step) -> None:
    """An event is explained as the rules will be evaluated at it."""
    if not isinstance(step, Submit):
        return
    expected = evaluated(Detector.load(pair.engine.dump(), Detector.STATE_VERSION), step)
    if expected is not None:
        explained = explain(pair.engine, step.fields, step.timestamp_ms, step.vars)
        fired = [one.rule.id for one in explained.rules if one.verdict]
        assert fired == [rule_id for _, rule_id, *_ in expected]


def unless_bounds_differ(*bounds: str) -> Callable[[Any, Any], bool]:
    """What is remembered is taken to serve a part if it would with these bounds of the old one."""
    serves = keeping._serves

    def too_kind(before: Any, after: Any) -> bool:
        same = {name: getattr(before, name) for name in bounds if hasattr(after, name)}
        return isinstance(before, Keyed) or serves(before, replace(after, **same))

    return too_kind


@pytest.mark.slow
@pytest.mark.parametrize(
    "serves",
    [
        lambda before, after: False,
        lambda before, after: True,
        unless_bounds_differ("op", "value"),
        unless_bounds_differ("window_secs"),
    ],
    ids=["nothing is kept", "everything is kept", "a grown count is kept", "a grown window is kept"],
)
def test_the_worlds_notice_if_too_much_or_too_little_is_kept(
    serves: Callable[[Any, Any], bool], examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_serves", serves)
    noticed = False
    for chance in examples(1, until=lambda: noticed):
        noticed = noticed or fails(chance.choice(WORLDS)(chance.choice).script())
    assert noticed


def fails(script: list[object]) -> bool:
    """Whether the engine differs from the reference, or fails."""
    try:
        return disagreement(script) is not None  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 -- a memory that is not there
        return True
