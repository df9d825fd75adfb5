"""Each portable vector holds for the executable specification and for the engine."""

import copy
import re
from pathlib import Path

import pytest

from engine import parse
from tests.conformance.vectors import (
    EnginePlayer,
    Player,
    ReferencePlayer,
    ReloadedPlayer,
    Vector,
    play,
    read,
)
from tests.differential.modes import TRIED, in_mode

VECTORS = dict(read())
README = Path(__file__).parent / "README.md"


@pytest.mark.parametrize("title", VECTORS)
def test_the_reference_agrees_with_the_vector(title: str) -> None:
    assert play(VECTORS[title], ReferencePlayer()) is None


@pytest.mark.parametrize("title", VECTORS)
def test_the_engine_agrees_with_the_vector_in_each_mode(title: str) -> None:
    for mode in TRIED:
        with in_mode(mode):
            assert play(VECTORS[title], EnginePlayer()) is None, mode


@pytest.mark.slow
@pytest.mark.parametrize("title", VECTORS)
def test_the_engine_agrees_with_the_vector_when_saved_and_loaded_at_every_step(title: str) -> None:
    assert play(VECTORS[title], ReloadedPlayer()) is None


def test_every_vector_says_why_and_expects_something() -> None:
    for title, vector in VECTORS.items():
        assert vector.keys() - {"monpoly"} == {"title", "why", "rules", "steps"}, title
        assert vector["why"].startswith("section"), title
        assert any("expect" in step or "refused" in step for step in vector["steps"]), title
        for step in vector["steps"]:
            assert len(step.keys() & {"change", "event", "tick"}) == 1, title
            assert ("by_time" in step) ^ ("refused" in step) or "tick" not in step, title


def test_the_table_of_formulas_is_that_of_the_vectors() -> None:
    page = README.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)\.json`: (.+) \| `(.+)` \|$", page, re.MULTILINE)
    table = {f"{file}: {title}": formula for file, title, formula in rows}
    assert table == {title: vector["monpoly"] for title, vector in VECTORS.items() if "monpoly" in vector}
    assert table


def test_a_formula_has_the_window_and_the_number_of_its_rule() -> None:
    for title, vector in VECTORS.items():
        if "monpoly" in vector:
            condition = parse(vector["rules"][0]["condition"])
            given = [
                str(getattr(condition, name)) for name in ("window_us", "value") if hasattr(condition, name)
            ]
            assert re.findall(r"(?:\[0,|[<>=] )(\d+)", vector["monpoly"]) == given, title


def test_titles_are_unique() -> None:
    assert len(VECTORS) == len(list(read()))


@pytest.mark.slow
@pytest.mark.parametrize("player", [EnginePlayer, ReferencePlayer])
def test_a_vector_that_expects_otherwise_is_found_out(player: type[Player]) -> None:
    """Each expectation counts: with one rule more or less in it, its vector fails."""
    for title, vector in VECTORS.items():
        for member in ("expect", "held_back", "by_time"):
            for number, step in enumerate(vector["steps"]):
                if member in step:
                    broken: Vector = copy.deepcopy(vector)
                    broken["steps"][number][member].append("no such rule")
                    assert (play(broken, player()) or "").startswith(f"step {number},"), title
                    break
