"""How Ray is started, as far as that shows without starting it."""

from typing import Any

import pytest

from engine.runtime.cluster import ray_session as cluster


def test_ray_leaves_the_log_of_this_process_as_it_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it sets its logger up anew, and its warnings go to the terminal."""
    seen: dict[str, Any] = {}

    def init(**options: Any) -> None:
        seen.update(options)
        raise RuntimeError("that is enough")

    monkeypatch.setattr(cluster.ray, "init", init)
    monkeypatch.setattr(cluster, "_check_reachable", lambda _: None)
    with pytest.raises(cluster.ClusterError, match="that is enough"):
        cluster.start("127.0.0.1:1")
    assert seen["configure_logging"] is False
    assert seen["log_to_driver"] is False
