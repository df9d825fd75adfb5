"""GET /api/cluster, and the metrics of what runs where."""

import asyncio
from pathlib import Path
from unittest.mock import AsyncMock

from prometheus_client.parser import text_string_to_metric_families

from api.http.app import Application
from api.settings import Settings
from engine.evaluation.rule_book.shadows import KINDS
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.measures import HISTOGRAMS
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.local_runtime.actors import LocalNodes
from tests.local_runtime.service import front_end, local_service, until

RULE = "per user (once within 10m a == 1)"


def caller_of(folder: Path, backend: object) -> Caller:
    return Caller(Application(Settings(data=folder, bootstrap_token=BOOTSTRAP), backend), BOOTSTRAP)


async def samples(caller: Caller) -> dict[tuple[str, ...], float]:
    response = await caller.plain("GET", "/metrics")
    assert response.status_code == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def test_the_cluster_shows_each_worker_with_its_detector_and_what_it_holds(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        caller = caller_of(tmp_path, service.backend)
        detector = await caller.detector("logins")
        await caller.rule(detector, RULE)
        for user in range(7):
            await caller.evaluate(detector, {"user": user, "a": 1})
        shown = (await caller("GET", "/api/cluster")).result
        worker = service.actors.with_detector(detector)
        assert worker is not None
        (active,) = [one for one in shown["workers"] if one.get("detectors")]
        assert active["name"] == worker.name
        assert active["answers"]
        assert active["connections"] == {"unix": 2}, "the scheduler's and the front end's"
        (figures,) = active["detectors"]
        assert figures["id"] == detector
        assert figures["name"] == "logins"
        assert figures["epoch"] == service.scheduler._placed[detector].epoch
        assert figures["rules"] == 1
        assert figures["keys"] == 7
        assert figures["state_bytes"] > 0
        assert figures["journal_bytes"] > 0
        assert "waiting" not in figures, "nothing waits"
        assert len(shown["front_ends"]) == 1
        assert shown["folder"]["total_bytes"] >= shown["folder"]["free_bytes"] > 0


async def test_what_waits_is_shown_with_its_age_even_while_a_batch_hangs(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service, front_end(service) as other:
        caller = caller_of(tmp_path, service.backend)
        detector = await caller.detector()
        await caller.evaluate(detector, {})
        worker = service.actors.with_detector(detector)
        assert worker is not None
        go_on = asyncio.Event()

        async def hang(what: str) -> None:
            if what == "handle":
                await go_on.wait()

        worker.before = hang
        calls = [asyncio.create_task(caller.evaluate(detector, {})) for _ in range(3)]
        await until(lambda: worker.in_flight)
        calls += [asyncio.create_task(caller.evaluate(detector, {})) for _ in range(3)]
        await until(lambda: service.backend.channels.waiting()[0] == 6)
        await asyncio.sleep(0.05)
        # Another front end shows the same.
        shown = (await caller_of(tmp_path, other.backend)("GET", "/api/cluster")).result
        (figures,) = [figures for one in shown["workers"] for figures in one.get("detectors", [])]
        assert figures["waiting"] == 3
        assert figures["waiting_s"] >= 0.05
        told = await samples(caller)
        assert told["rule_detector_waiting_operations", "127.0.0.1"] == 3
        assert told["rule_detector_waiting_seconds", "127.0.0.1"] >= 0.05
        assert told["rule_detector_front_end_waiting_requests",] == 6
        assert told["rule_detector_front_end_waiting_seconds",] >= 0.05
        go_on.set()
        await asyncio.gather(*calls)
        told = await samples(caller)
        assert told["rule_detector_waiting_operations", "127.0.0.1"] == 0
        assert told["rule_detector_front_end_waiting_requests",] == 0


async def test_a_worker_that_does_not_answer_is_shown_as_such_within_the_bound(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        caller = caller_of(tmp_path, service.backend)
        detector = await caller.detector()
        await caller.evaluate(detector, {})
        await caller("GET", "/api/cluster")
        worker = service.actors.with_detector(detector)
        assert worker is not None
        for server in worker.service.servers:
            server.methods = {**server.methods, "figures": _hang}
        began_s = asyncio.get_running_loop().time()
        shown = (await caller("GET", "/api/cluster")).result
        assert asyncio.get_running_loop().time() - began_s < 2
        (silent,) = [one for one in shown["workers"] if not one["answers"]]
        assert silent["name"] == worker.name
        assert [figures["id"] for figures in silent["detectors"]] == [detector]
        assert (await samples(caller))["rule_detector_workers_silent", "127.0.0.1"] == 1


async def test_what_workers_measure_is_summed_and_outlives_them(tmp_path: Path) -> None:
    async with local_service(tmp_path, retry_s=0.01) as service:
        caller = caller_of(tmp_path, service.backend)
        detector = await caller.detector()
        for _ in range(5):
            await caller.evaluate(detector, {})
        told = await samples(caller)
        for name in HISTOGRAMS:
            assert ("rule_detector_" + name + "_count", "127.0.0.1") in told
        assert told["rule_detector_batch_operations_count", "127.0.0.1"] == 5
        assert told["rule_detector_batch_operations_sum", "127.0.0.1"] == 5
        assert told["rule_detector_journal_sync_seconds_count", "127.0.0.1"] >= 5
        assert told["rule_detector_activation_seconds_count", "127.0.0.1"] == 1
        worker = service.actors.with_detector(detector)
        assert worker is not None
        worker.die()
        await until(lambda: not service.scheduler.active_detectors)
        await caller.evaluate(detector, {})
        told = await samples(caller)
        assert told["rule_detector_batch_operations_count", "127.0.0.1"] == 6
        assert told["rule_detector_activation_seconds_count", "127.0.0.1"] == 2
        # Asking again must not add it again.
        assert (await samples(caller))["rule_detector_batch_operations_count", "127.0.0.1"] == 6


async def test_evicted_keys_are_counted(tmp_path: Path) -> None:
    from engine.language.limits import Limits  # noqa: PLC0415 -- one test's own

    async with local_service(tmp_path, limits=Limits(keys_max=10)) as service:
        caller = caller_of(tmp_path, service.backend)
        detector = await caller.detector()
        await caller.rule(detector, RULE)
        for user in range(25):
            await caller.evaluate(detector, {"user": user, "a": 1})
        assert (await samples(caller))["rule_detector_keys_evicted_total", "127.0.0.1"] == 15


async def test_the_process_and_the_build_are_told(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        told = await samples(caller_of(tmp_path, service.backend))
        assert told["process_resident_memory_bytes",] > 0
        assert sum(name[0] == "rule_detector_build_info" for name in told) == 1
        assert 0 <= told["rule_detector_directory_answer_age_seconds",] < 15
        assert told["rule_detector_data_free_bytes",] > 0


async def test_without_the_scheduler_metrics_tell_what_is_known_and_wait_once(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        caller = caller_of(tmp_path, service.backend)
        assert (await samples(caller))["rule_detector_no_room",] == 0
        away = AsyncMock(side_effect=DetectorUnavailable(1501, "the scheduler is away", 1.0))
        service.backend.scheduler.ask = away  # type: ignore[method-assign]
        caller = caller_of(tmp_path, service.backend)
        told = await samples(caller)
        # A question that nobody answers takes five seconds, and Prometheus waits for ten.
        assert [call.args[0] for call in away.await_args_list if call.args[0] != "changes"] == ["add_counts"]
        assert told["rule_detector_directory_answer_age_seconds",] >= 0
        assert told["rule_detector_front_ends",] == 1
        # A zero would be wrong: RuleDetectorNodeLost would fire.
        assert not told.keys() & {("rule_detector_nodes_alive",), ("rule_detector_no_room",)}
        assert (await caller("GET", "/api/cluster")).codes == [1501]


async def test_a_certificate_that_cannot_be_used_is_among_the_metrics(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        app = Application(Settings(data=tmp_path, bootstrap_token=BOOTSTRAP), service.backend)
        app.watch_certificate(lambda: True)
        assert (await samples(Caller(app, BOOTSTRAP)))["rule_detector_certificate_stale",] == 1


async def _hang() -> None:
    await asyncio.Event().wait()


async def test_workers_are_shown_in_pages_by_name(tmp_path: Path) -> None:
    async with local_service(tmp_path, spares=3) as service:
        caller = caller_of(tmp_path, service.backend)
        await until(lambda: len(service.actors.started) == 3)
        names = [worker["name"] for worker in (await caller("GET", "/api/cluster")).result["workers"]]
        assert names == sorted(names)
        assert len(names) == 3
        first = (await caller("GET", "/api/cluster?limit=2")).result
        assert [worker["name"] for worker in first["workers"]] == names[:2]
        assert first["front_ends"]
        rest = (await caller("GET", f"/api/cluster?after={names[1]}")).result
        assert [worker["name"] for worker in rest["workers"]] == names[2:]
        assert (await caller("GET", "/api/cluster?limit=0")).envelope["errors"][0]["code"] == 1006


async def test_a_detector_is_moved_and_a_node_drained_by_request(tmp_path: Path) -> None:
    nodes = LocalNodes(n=8, m=8)
    async with (
        local_service(tmp_path, nodes=nodes, nodes_s=0.02, turn_s=0) as service,
        front_end(service) as other,
    ):
        caller = caller_of(tmp_path, other.backend)
        detector = await caller.detector()
        path = f"/api/detectors/{detector}/move"
        for node in ("m", "n"):
            moved = (await caller("POST", path, {"node": node})).result
            worker = service.actors.with_detector(detector)
            assert worker is not None
            assert moved == {"node": node, "worker": worker.name}
        assert (await caller("POST", path, {})).result["node"] == "m"
        for document, code in (({"node": "x"}, 1204), ({"node": 1}, 1001)):
            assert (await caller("POST", path, document)).envelope["errors"][0]["code"] == code
        drain = "/api/cluster/nodes/m/drain"
        assert (await caller("POST", drain)).result["draining"] == "operator"
        await until(lambda: (one := service.actors.with_detector(detector)) and one.node == "n")
        await until(lambda: all(one.dead or one.node == "n" for one in service.actors.started))
        shown = (await caller("GET", "/api/cluster")).result
        assert {node["id"]: node["draining"] for node in shown["nodes"]} == {"n": "", "m": "operator"}
        assert (await samples(caller))["rule_detector_nodes_draining",] == 1
        assert (await samples(caller))["rule_detector_no_room",] == 0
        assert (await caller("DELETE", drain)).result["draining"] == ""
        for method in ("POST", "DELETE"):
            reply = await caller(method, "/api/cluster/nodes/x/drain")
            assert reply.envelope["errors"][0]["code"] == 1204


async def test_firings_of_shadow_rules_and_drafts_are_counted(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        caller = caller_of(tmp_path, service.backend)
        detector = await caller.detector()
        rule = await caller.rule(detector, "a > 1")
        await caller.rule(detector, "a == 0", shadow=True)
        told = await samples(caller)
        assert told["rule_detector_shadow_firings_total", "127.0.0.1"] == 0
        await caller.evaluate(detector, {"a": 0})
        await caller.rule(detector, "a < 3", shadow=True, draftOf=rule)
        for a in (0, 2, 2, 3, "none"):
            await caller.evaluate(detector, {"a": a})
        told = await samples(caller)
        assert told["rule_detector_shadow_firings_total", "127.0.0.1"] == 5
        counted = {kind: told["rule_detector_compared_firings_total", kind, "127.0.0.1"] for kind in KINDS}
        assert counted == {"both": 2, "only_rule": 1, "only_draft": 1}


async def test_the_lag_of_event_loops_is_told_by_the_kind_of_process(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        caller = caller_of(tmp_path, service.backend)
        await until(lambda: service.actors.started)
        slow = service.actors.started[0]
        lags = {
            "front_end": (service.backend._lag, 3.0),
            "directory": (service.scheduler._census._lag, 5.0),
            "worker": (slow.service._lag, 7.0),
        }
        for lag, measured_s in lags.values():
            assert lag._timer is not None, "it is being measured"
            lag._lags_s.append(measured_s)
        told = await samples(caller)
        for process, (_, measured_s) in lags.items():
            assert told["rule_detector_event_loop_lag_seconds", process] == measured_s
        shown = (await caller("GET", "/api/cluster")).result
        assert [one.get("loop_lag_s") for one in shown["workers"] if one["name"] == slow.name] == [7]
