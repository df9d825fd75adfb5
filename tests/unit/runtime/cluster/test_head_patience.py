"""An operator hears of a head that would take nodes for dead after a short failure of its link."""

from typing import Any

import pytest
from ray._raylet import Config

from engine.runtime.cluster import node_checks
from engine.runtime.cluster.ray_nodes import SilentError

HEAD = {"NodeID": "a", "Alive": True, "Resources": {"node:__internal_head__": 1.0}}
OTHER = {"NodeID": "b", "Alive": True, "Resources": {"CPU": 4.0}}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that were asked; a function runs in this process, whose Ray is set by the fixture's user."""
    nodes: list[str] = []

    def ask(node: dict[str, Any], work: Any) -> Any:
        nodes.append(node["NodeID"])
        return work()

    monkeypatch.setattr(node_checks, "alive_nodes", lambda: [OTHER, HEAD])
    monkeypatch.setattr(node_checks, "ask_node", ask)
    return nodes


@pytest.mark.parametrize(("checks", "warns"), [(5, True), (39, True), (40, False), (200, False)])
def test_the_head_is_asked_how_long_it_waits(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, checks: int, warns: bool
) -> None:
    class Set:
        health_check_failure_threshold = staticmethod(lambda: checks)
        health_check_period_ms = staticmethod(lambda: 3_000)

    monkeypatch.setattr("ray._raylet.Config", Set)
    warning = node_checks.patience_warning()
    assert asked == ["a"]
    assert (warning is not None) is warns
    if warning is not None:
        assert f"cannot reach for {3 * checks} s" in warning
        assert "RAY_health_check_failure_threshold=200 on every node" in warning


def test_ray_tells_its_own_values(asked: list[str]) -> None:
    """The names are those of the installed Ray."""
    assert Config.health_check_failure_threshold() * Config.health_check_period_ms() == 15_000
    assert "15 s" in (node_checks.patience_warning() or "")


def test_a_head_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: Any) -> Any:
        raise SilentError("it has not answered for 30 s")

    monkeypatch.setattr(node_checks, "alive_nodes", lambda: [HEAD])
    monkeypatch.setattr(node_checks, "ask_node", silent)
    assert "it has not answered for 30 s" in (node_checks.patience_warning() or "")
    monkeypatch.setattr(node_checks, "alive_nodes", lambda: [OTHER])
    assert node_checks.patience_warning() is None
