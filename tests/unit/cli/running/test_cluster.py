"""`rule-detector cluster`: what it shows of a service's answer."""

import json
from importlib import import_module
from typing import Any

import httpx
import pytest

from api.schema.examples import CLUSTER
from api.schema.messages.cluster import Busiest
from engine.runtime.contract.figures import DetectorFigures, WorkerFigures
from rule_detector_client import Client
from tests.unit.cli.commands import run

_SILENT = {"name": "worker-2", "answers": False, "detectors": [{"id": "f" * 32, "epoch": 9}]}


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the service answers, which a test may change."""
    document: dict[str, Any] = json.loads(json.dumps(CLUSTER))

    def respond(request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("GET", "/api/cluster")
        return httpx.Response(200, json={"success": True, "errors": [], "messages": [], "result": document})

    client = Client("http://s", "t", transport=httpx.MockTransport(respond))
    monkeypatch.setattr(
        import_module("api.cli.options.service_options"), "Client", lambda _url, _token, **_: client
    )
    return document


def shown(*options: str) -> str:
    return run("cluster", *options).stdout


def test_tables_show_nodes_front_ends_and_workers(answer: dict[str, Any]) -> None:
    answer["workers"].append(_SILENT)
    answer["workers"].append({"name": "worker-3", "answers": True})
    answer["nodes"][0]["alive"] = False
    assert shown() == (
        "node      address   id            cpus  free  detectors\n"
        "a (dead)  10.0.0.7  9f3c1d9f3c1d  8     7.7   1\n"
        "front end  pid   memory   waiting  oldest  loop lag  last answer  started at\n"
        "a          4711  83.0 MB  3        2 ms    1 ms      400 ms       2024-03-04T09:36:40Z\n"
        "worker             node      pid   memory   detector                          waiting  oldest  "
        "keys  state   epoch  active since\n"
        "worker-1f0c9a7e-1  10.0.0.7  4711  83.0 MB  logins                            1        0 ms    "
        "1200  0.3 MB  4      2024-03-04T09:38:20Z\n"
        "worker-2 (silent)                           ffffffffffffffffffffffffffffffff  0        0 ms    "
        "0     0.0 MB  9\n"
        "worker-3                                    (spare)\n"
        "service  pid   setting         given  in force\n"
        "a        4711  --max-resident  200    50\n"
    )


def test_nothing_is_said_of_settings_that_are_in_force(answer: dict[str, Any]) -> None:
    answer["other_settings"] = []
    assert "setting" not in shown()


def test_json_is_the_answer_of_the_service(answer: dict[str, Any]) -> None:
    assert json.loads(shown("-o", "json")) == answer


@pytest.mark.parametrize(("options", "names"), [((), ["logins"]), (("events",), ["logins", "other"])])
def test_top_shows_the_busiest_detectors_and_nothing_else(
    answer: dict[str, Any], options: tuple[str, ...], names: list[str]
) -> None:
    (busy,) = answer["busiest"]["by_cpu"]
    answer["busiest"]["by_events"].append({**busy, "name": "other", "events_per_s": 3.0, "cpu": 0.0})
    header, first, *more = [line.split() for line in shown("--top", *options).splitlines()]
    assert header == ["detector", "id", "cpu", "events/s", "node", "worker"]
    assert first == ["logins", busy["id"], "5.7%", "812.4", "10.0.0.7", "worker-1f0c9a7e-1"]
    assert [first[0], *(line[0] for line in more)] == names


def test_the_busiest_are_found_in_all_workers_and_those_that_do_nothing_are_left_out() -> None:
    workers = [
        WorkerFigures(
            f"w{number}",
            answers=True,
            detectors=[
                DetectorFigures(f"{number}-{cpu}", 1, events_per_s=100.0 - cpu, cpu=float(cpu))
                for cpu in range(number, 12, 3)
            ],
        )
        for number in range(3)
    ]
    busiest = Busiest.of(workers)
    assert [one.cpu for one in busiest.by_cpu] == [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]
    assert [one.cpu for one in busiest.by_events] == list(range(10))
    assert [one.worker for one in busiest.by_events[:4]] == ["w0", "w1", "w2", "w0"]
    assert Busiest.of([WorkerFigures("w", answers=True, detectors=[DetectorFigures("d", 1)])]) == Busiest()
