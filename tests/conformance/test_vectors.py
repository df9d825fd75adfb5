"""Each portable vector holds for the executable specification and for the engine."""

import copy

import pytest

from tests.conformance.vectors import (
    EnginePlayer,
    Player,
    ReferencePlayer,
    ReloadedPlayer,
    Vector,
    play,
    read,
)

VECTORS = dict(read())


@pytest.mark.parametrize("title", VECTORS)
def test_the_reference_agrees_with_the_vector(title: str) -> None:
    assert play(VECTORS[title], ReferencePlayer()) is None


@pytest.mark.parametrize("title", VECTORS)
def test_the_engine_agrees_with_the_vector(title: str) -> None:
    assert play(VECTORS[title], EnginePlayer()) is None


@pytest.mark.parametrize("title", VECTORS)
def test_the_engine_agrees_with_the_vector_when_saved_and_loaded_at_every_step(title: str) -> None:
    assert play(VECTORS[title], ReloadedPlayer()) is None


def test_every_vector_says_why_and_expects_something() -> None:
    for title, vector in VECTORS.items():
        assert set(vector) == {"title", "why", "rules", "steps"}, title
        assert vector["why"].startswith("section"), title
        assert any("expect" in step or "refused" in step for step in vector["steps"]), title
        assert all(("change" in step) ^ ("event" in step) for step in vector["steps"]), title


def test_titles_are_unique() -> None:
    assert len(VECTORS) == len(list(read()))


@pytest.mark.parametrize("player", [EnginePlayer, ReferencePlayer])
def test_a_vector_that_expects_otherwise_is_found_out(player: type[Player]) -> None:
    """Each expectation counts: with one rule more or less in it, its vector fails."""
    for title, vector in VECTORS.items():
        for number, step in enumerate(vector["steps"]):
            if "expect" in step:
                broken: Vector = copy.deepcopy(vector)
                broken["steps"][number]["expect"].append("no such rule")
                assert (play(broken, player()) or "").startswith(f"step {number},"), title
                break
