"""What neighbouring releases hand to each other, and how those that are too far apart are refused."""

import pickle
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from ray._raylet import Config
from ray.exceptions import RayError

from engine.runtime.cluster import directory_reach, node_checks
from engine.runtime.cluster.directory_reach import DirectoryReach
from engine.runtime.cluster.node_checks import OtherVersionError, refuse_other_versions
from engine.runtime.cluster.ray_nodes import SilentError
from engine.runtime.cluster.session import joining
from engine.runtime.contract.build import SPOKEN, build_version
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.scheduler_client import Unreachable
from engine.runtime.transport.connecting import OtherProtocolError
from tests.unit.runtime.cluster.test_directory_reach import SILENT_S, refusing


def nodes(monkeypatch: pytest.MonkeyPatch, **installed: Any) -> None:
    """Have a cluster of these nodes, each with what it answers or raises. The first one is this process's."""

    class Context:
        def get_node_id(self) -> str:
            return next(iter(installed))

    def ask(node: dict[str, Any], _: object) -> Any:
        answer = installed[node["NodeID"]]
        if isinstance(answer, Exception):
            raise answer
        return answer

    found = [{"NodeID": name, "NodeManagerAddress": name, "Alive": True} for name in installed]
    monkeypatch.setattr(node_checks.ray, "get_runtime_context", Context)
    monkeypatch.setattr(node_checks, "alive_nodes", lambda: found)
    monkeypatch.setattr(node_checks, "ask_node", ask)


OURS = build_version(), tuple(SPOKEN)


def test_nodes_of_the_same_version_and_those_that_are_silent_are_no_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes(monkeypatch, a=OURS, b=OURS, c=RayError("it is gone"))
    assert refuse_other_versions() == []


def test_a_neighbouring_release_is_told_and_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes(monkeypatch, a=OURS, b=("9.1", (SPOKEN.current, SPOKEN.current + 1)))
    (told,) = refuse_other_versions()
    assert "the node b has rule-detector 9.1, and this service is " + build_version() in told


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        (("0.0.1", None), "rule-detector 0.0.1, which speaks no protocol that has a number"),
        (("9.2", (7, 8)), "rule-detector 9.2, which speaks protocols 7 to 8"),
        (("", None), "no rule-detector in the Python of its Ray"),
    ],
)
@pytest.mark.parametrize("own", [False, True])
def test_a_release_that_is_too_far_away_is_refused_with_both_versions(
    monkeypatch: pytest.MonkeyPatch, installed: Any, words: str, own: bool
) -> None:
    """Also if only this machine's Ray is of another install."""
    nodes(monkeypatch, **({"a": installed, "b": OURS} if own else {"a": OURS, "b": installed}))
    with pytest.raises(OtherVersionError, match=words) as refused:
        refuse_other_versions()
    assert build_version() in str(refused.value)
    assert f"the node {'a' if own else 'b'} " in str(refused.value)


def test_a_node_with_an_install_from_before_there_were_numbers_tells_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = node_checks.what_is_installed()
    assert asked() == OURS
    monkeypatch.setitem(sys.modules, "engine.runtime.contract.build", None)
    monkeypatch.delattr("engine.runtime.contract.build")
    assert asked() == (metadata.version("rule-detector"), None)


def test_settings_may_come_from_a_release_with_more_or_fewer_of_them() -> None:
    settings = RuntimeSettings(data=Path("/data"), turn_s=7.0)
    by_position = pickle.loads(pickle.dumps(settings))
    assert by_position == settings
    state = dict(settings.__getstate__() or vars(settings))
    assert state["data"] == Path("/data")
    state["of_a_later_release"] = 1
    del state["folder_id"]
    received = object.__new__(type(settings))
    received.__dict__.update(state)
    assert received.folder_id is None
    assert received == settings


async def test_a_directory_of_a_far_release_is_refused_at_once_and_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def far(_: object) -> Any:
        raise OtherProtocolError("the other process speaks protocol 9, and this one speaks protocol 1")

    monkeypatch.setattr(directory_reach.LinkClient, "to", far)
    directory = refusing()
    with pytest.raises(Unreachable, match="speaks protocol 9, and this one speaks protocol 1"):
        await DirectoryReach(SILENT_S).connect(directory, "here")  # type: ignore[arg-type]
    assert directory.ended == 0


def test_ray_of_another_version_is_told_with_both() -> None:
    raised = """Traceback (most recent call last):
RuntimeError: Version mismatch: The cluster was started with:
    Ray: 2.59.0
    Python: 3.11.7
This process on node 10.0.0.1 was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""
    assert joining._in_words(raised) == (
        "The cluster was started with: Ray: 2.59.0, Python: 3.11.7, "
        "This process on node 10.0.0.1 was started with: Ray: 2.60.0, Python: 3.11.7"
    )


def test_of_several_errors_of_ray_the_one_about_its_token_is_told() -> None:
    raised = """Traceback (most recent call last):
ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken: the token is incorrect

Traceback (most recent call last):
ConnectionError: Failed to connect to Ray cluster at 10.0.0.1:6379
"""
    assert joining._in_words(raised) == "RPC error: InvalidAuthToken: the token is incorrect"


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
        assert f"dead after {3 * checks} s without contact" in warning
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
