"""A cluster under load, and its operator's requests: where detectors are, moves, drained nodes."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.linearizability.clients import Client, Load, NoAnswer, NotExecuted, Subject
from tests.linearizability.cluster import Cluster, Node

QUIET_S: Final = 1.0
"""How long the load continues before and after each scenario."""
ANSWER_WITHIN_S: Final = 120.0
"""A detector that has not answered again after this long is lost."""


@dataclass
class Trial:
    """A cluster under load."""

    cluster: Cluster
    load: Load
    chance: random.Random = field(default_factory=random.Random)

    def recovered(self, since_s: float, beside: str = "") -> float:
        """Wait until all detectors answer again; return how long one was away at most.

        Answers through the front end `beside` do not count.
        """
        self.load.until_all_answer(since_s, ANSWER_WITHIN_S, beside)
        time.sleep(QUIET_S)
        # Requests in flight may have been answered at once, and none since.
        self.load.until_all_answer(time.monotonic(), ANSWER_WITHIN_S, beside)
        return max(subject.away_s(since_s, beside) for subject in self.load.subjects)

    def busy_worker(self) -> int:
        """The process that has the first detector."""
        return self.cluster.worker(self.load.subjects[0].id)

    def worker_node(self) -> Node:
        """A node with a detector that is not the head; one is moved there if there is none."""

        def found() -> Node | None:
            nodes = [self.cluster.node_of(self.cluster.worker(one.id)) for one in self.load.subjects]
            return next((node for node in nodes if node.number), None)

        def moved() -> Node | None:
            self.move(self.load.subjects[0])
            return found()

        return found() or self._wait_for(moved, "a detector on a node that is not the head")

    def fronts_changed(self) -> None:
        """Tell the clients where the front ends are now."""
        self.load.fronts = self.cluster.fronts

    # -- the operator -------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, document: object = None) -> Any:
        """Ask until it is done, and return the result. Only for requests that may be executed twice."""

        def answered() -> Any:
            operator = Client(self.load, "operator", 0.0)
            try:
                status, envelope = operator.request(method, path, document)
            except (NotExecuted, NoAnswer):
                return None
            finally:
                operator.leave()
            assert status == 200, envelope
            return envelope["result"]

        return self._wait_for(answered, f"{method} {path}")

    def nodes(self, *, draining: bool = False) -> list[str]:
        """Ray's ids of the nodes that take workers, or of those that are drained."""
        shown = self.ask("GET", "/api/cluster")["nodes"]
        alive = [node for node in shown if node["alive"] and node["cpus"]]
        return [node["id"] for node in alive if bool(node.get("draining")) is draining]

    def places(self) -> dict[str, str]:
        """Ray's id of the node of each active detector."""
        workers = self.ask("GET", "/api/cluster")["workers"]
        return {one["id"]: worker["node"] for worker in workers for one in worker.get("detectors", [])}

    def place(self, subject: Subject) -> str:
        """Ray's id of the node of a detector, once it is known."""
        return self._wait_for(lambda: self.places().get(subject.id), "a place of the detector")

    def move(self, subject: Subject) -> None:
        """Move a detector to any other node with room."""
        here = self.place(subject)
        others = self._wait_for(lambda: set(self.nodes()) - {here}, "another node")
        to = self.chance.choice(sorted(others))
        self.ask("POST", f"/api/detectors/{subject.id}/move", {"node": to})

    def drain(self, node: str) -> None:
        """Have detectors leave a node."""
        self.ask("POST", f"/api/cluster/nodes/{node}/drain")

    def undrain(self, node: str) -> None:
        """Allow detectors on a node again."""
        self.ask("DELETE", f"/api/cluster/nodes/{node}/drain")

    def until_empty(self, node: str) -> None:
        """Wait until a node has no worker."""

        def empty() -> bool:
            workers = self.ask("GET", "/api/cluster")["workers"]
            return not any(worker.get("node") == node for worker in workers)

        self._wait_for(empty, f"no worker on {node}")

    def _wait_for(self, look: Callable[[], Any], what: str) -> Any:
        give_up_s = time.monotonic() + ANSWER_WITHIN_S
        while not (found := look()):
            assert time.monotonic() < give_up_s, f"not within {ANSWER_WITHIN_S} s: {what}"
            time.sleep(0.1)
        return found
