"""On which node the next directory is started, also where Ray takes a dead node for alive."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from engine.runtime.cluster import directory_reach, ray_directory
from engine.runtime.cluster.ray_calls import RayActor
from engine.runtime.cluster.ray_directory import RayDirectory
from engine.runtime.cluster.ray_nodes import node_for_directory
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.figures import NodeFigures
from engine.runtime.contract.settings import RuntimeSettings


def node(name: str, cpus: float = 2.0, **more: Any) -> NodeFigures:
    figures = {"address": name, "host": name, "alive": True, "memory_bytes": 0, "draining": ""}
    return NodeFigures(id=name, cpus=cpus, cpus_free=cpus, memory_free_bytes=0, **{**figures, **more})


A, B, C, D, HEAD = (letter * 56 for letter in "abcde")
"""Ids of nodes have as many digits."""
NODES = [node(A), node(B), node(HEAD, cpus=0), node(C, alive=False), node(D, draining="operator")]


@pytest.mark.parametrize(
    ("here", "lost_on", "failed", "chosen"),
    [
        (B, "", [], B),
        (HEAD, "", [], A),
        (A, A, [], B),
        (A, B, [A], HEAD),
        (A, B, [A, HEAD], B),
        (A, "", [B, HEAD, A], B),
    ],
)
def test_the_next_directory_is_started_where_it_is_most_likely_to_stay(here, lost_on, failed, chosen):
    assert node_for_directory(NODES, here, lost_on, failed) == chosen


async def test_a_node_on_which_no_directory_answers_is_not_chosen_again_for_a_while(
    tmp_path, monkeypatch, caplog
):
    """With `RAY_health_check_failure_threshold=200`, Ray takes a dead node for alive for ten minutes."""
    started: list[str] = []

    async def never() -> None:
        await asyncio.Event().wait()

    def options(*, scheduling_strategy: Any, **_: Any) -> Any:
        started.append(scheduling_strategy.node_id)
        return SimpleNamespace(remote=lambda *_: SimpleNamespace(listen=SimpleNamespace(remote=never)))

    async def end(_: RayActor) -> None:
        pass

    context = SimpleNamespace(get_node_id=lambda: A)
    monkeypatch.setattr(directory_reach, "_ANSWER_S", 0.01)
    monkeypatch.setattr(RayActor, "end", end)
    monkeypatch.setattr(ray_directory, "look", lambda: NODES)
    monkeypatch.setattr(ray_directory, "control_store", lambda: SimpleNamespace(cluster_id=b"cluster"))
    monkeypatch.setattr(
        ray_directory,
        "ray",
        SimpleNamespace(
            remote=lambda **_: lambda _: SimpleNamespace(options=options),
            get_runtime_context=lambda: context,
        ),
    )
    directory = RayDirectory(RuntimeSettings(data=tmp_path, folder_id="f"), {})
    for _ in range(4):
        with pytest.raises(ActorDied):
            await directory.connect()
    await directory.end()
    assert started == [A, B, HEAD, A]
    assert f"none is started on the node {A[:12]}" in caplog.text
