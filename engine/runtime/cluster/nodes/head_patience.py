"""How long the head lets a node be out of reach before it takes the node for dead."""

from typing import Any, Final

from ray.exceptions import RayError

from engine.runtime.cluster.nodes.node_asks import SilentError, alive_nodes, ask_node, is_head

VARIABLE: Final = "RAY_health_check_failure_threshold"
WANTED: Final = 200
"""Ten minutes: as long as Ray's processes wait for a control store that is away."""
_LEAST_S: Final = 120.0


def patience_warning() -> str | None:
    """Return what an operator should know; None if the head is patient enough. Asks the head.

    A node that was taken for dead ends by itself as soon as it hears of that. So if the link of an impatient
    head fails for a while, all nodes end once it is back.
    """
    heads = [node for node in alive_nodes() if is_head(node)]
    if not heads:
        return None
    try:
        patience_s = ask_node(heads[0], patience_in_force())
    except (SilentError, RayError) as error:
        return f"how long ray's head waits for a node is not known: {getattr(error, 'cause', error)}"
    if patience_s >= _LEAST_S:
        return None
    return (
        f"ray's head takes nodes that it cannot reach for {patience_s:g} s for dead, and they end: "
        "a short failure of its link ends the whole cluster. "
        f"Start ray with {VARIABLE}={WANTED} on every node"
    )


def patience_in_force() -> Any:
    """Return the function that tells how many seconds the Ray of the process where it is called waits."""

    # Not of the module, so that an earlier version of this package can run it.
    def patience_s() -> float:
        from ray._raylet import Config  # type: ignore[attr-defined]  # noqa: PLC0415

        return float(Config.health_check_failure_threshold() * Config.health_check_period_ms() / 1_000)

    return patience_s
