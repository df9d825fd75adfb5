"""What triggers say of events, and what is remembered of the nodes that they were found for."""

import pytest

from engine import parse
from engine.evaluation.memory import Regime
from engine.evaluation.plan import triggers
from engine.evaluation.plan.triggers import PRESENT, Element, Found, Hit, Trigger


@pytest.mark.parametrize(
    ("found", "several"),
    [
        ({Hit("a", 1)}, False),
        ({Hit("a", PRESENT)}, False),
        ({Hit("a", 1), Hit("a", 2), Hit("a", 3)}, False),
        ({Hit("a", 1), Hit("b", 1)}, True),
        ({Hit("a", 1), Hit("a", PRESENT)}, True),
        ({Element("a", 1), Element("a", 2)}, True),
        ({Hit("a", 1), Found("a", "x")}, True),
    ],
)
def test_an_event_meets_several_triggers_unless_all_are_values_of_one_fact(
    found: set[Trigger], several: bool
) -> None:
    assert triggers.may_meet_several(frozenset(found)) is several


def test_where_each_event_is_shown_no_trigger_is_met() -> None:
    assert not triggers.may_meet_several(None)


def test_regimes_are_remembered_of_so_many_nodes_and_are_the_same_when_found_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triggers._REGIMES, "found", {})
    monkeypatch.setattr(triggers, "_FOUND_MAX", 3)
    lengths = []
    for number in range(5):
        # It asks for what is inside it, and for nothing else.
        assert triggers.regime_of(parse(f"once a == {number}")) is Regime.UNCHANGED
        lengths.append(len(triggers._REGIMES.found))
    assert lengths == [1, 2, 3, 4, 1]
