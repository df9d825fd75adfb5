"""`rule-detector move`, `drain` and `undrain`: what they ask of the service, and what they say."""

import json
from importlib import import_module
from typing import Any

import httpx
import pytest

from api.cli.running import cluster
from api.schema.examples import CLUSTER
from rule_detector_client import Client
from tests.unit.cli.commands import run

ID = "9f3c1d9f3c1d"
OTHER = "9f77aa77aa77"
NODE = "a (10.0.0.7, 9f3c1d9f3c1d)"


class Service:
    """Answers as a service of two nodes does. Every second look at the cluster shows one worker less."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        node = {**CLUSTER["nodes"][0], "id": ID}
        self.nodes = [node, {**node, "id": OTHER, "address": "10.0.0.8", "host": "b"}]
        self.drained_by = ""
        self.no_room = ""
        self.looks = 0
        self.workers = [{"name": f"w{n}", "answers": True, "node": ID} for n in range(3)]

    def respond(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        result: Any = self._result(request.method, path)
        if path != "/api/cluster" and request.method != "GET":
            self.asked.append((request.method, path, json.loads(request.content or b"null")))
        return httpx.Response(200, json={"success": True, "errors": [], "messages": [], "result": result})

    def _result(self, method: str, path: str) -> Any:
        if path == "/api/detectors":
            return [{"id": "d" * 32, "name": "logins"}]
        if path.endswith("/move"):
            return {"node": OTHER, "worker": "w"}
        if path.endswith("/drain"):
            return {**self.nodes[0], "draining": "operator" if method == "POST" else self.drained_by}
        self.looks += 1
        workers = self.workers[self.looks // 2 :]
        return {**CLUSTER, "nodes": self.nodes, "workers": workers, "no_room": self.no_room}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    answers = Service()

    def connected(_url: str, _token: str, **_: object) -> Client:
        return Client("http://s", "t", transport=httpx.MockTransport(answers.respond))

    monkeypatch.setattr(import_module("api.cli.options.service_options"), "Client", connected)
    monkeypatch.setattr(cluster, "_LOOK_S", 0.0)
    monkeypatch.setattr(cluster, "_DONE_AFTER_S", 0.01)
    return answers


def test_move_names_where_the_detector_is_now(service: Service) -> None:
    assert run("move logins").output == f"The detector `logins` is active on b (10.0.0.8, {OTHER}).\n"
    run("move logins --to 10.0.0.8")
    path = f"/api/detectors/{'d' * 32}/move"
    assert service.asked == [("POST", path, {}), ("POST", path, {"node": OTHER})]


def test_drain_tells_what_is_left_until_nothing_is(service: Service) -> None:
    service.no_room = "no node has room"
    assert run("drain 9f3").output == (
        f"{NODE} is drained.\n"
        "left there: 0 detectors, 2 workers; no node has room\n"
        "left there: 0 detectors, 1 worker; no node has room\n"
        "No detector is left there.\n"
    )
    assert service.asked == [("POST", f"/api/cluster/nodes/{ID}/drain", None)]


def test_drain_can_be_told_not_to_wait(service: Service) -> None:
    assert run("drain a --no-wait").output == f"{NODE} is drained.\n"


def test_undrain_says_if_ray_goes_on_draining(service: Service) -> None:
    assert run("undrain a").output == f"{NODE} takes detectors again.\n"
    service.drained_by = "ray"
    assert "is drained by Ray" in run("undrain a", status=1).output
    assert {method for method, *_ in service.asked} == {"DELETE"}


@pytest.mark.parametrize(("wanted", "said"), [("9f", "2 nodes are `9f`"), ("c", "no living node is `c`")])
def test_a_node_that_is_not_one_is_refused(service: Service, wanted: str, said: str) -> None:
    assert said in run("drain", wanted, status=1).output
    assert not service.asked
