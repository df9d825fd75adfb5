"""A joined cluster whose control store is down: active detectors are served, and what happens then."""

from pathlib import Path

import pytest

from tests.node_deaths import load, service_on
from tests.ray_cluster import ray_cluster
from tests.service_process import END_WITHIN_S, until

PATIENT = {"RAY_gcs_rpc_server_reconnect_timeout_s": "600"}


@pytest.mark.ray
def test_active_detectors_are_served_without_it_and_all_heals_when_it_is_back_with_its_storage(tmp_path):
    kept = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(tmp_path / "kept")}
    Path(kept["RAY_gcs_storage_path"]).mkdir()
    with (
        ray_cluster(tmp_path, nodes=1, **PATIENT, **kept) as nodes,
        service_on(nodes, tmp_path / "data") as service,
        load(service, 2) as callers,
    ):
        nodes.kill_control_store()
        until(lambda: "control store" in service.request("GET", "/readyz").text)
        ready = service.request("GET", "/readyz")
        assert ready.status_code == 200, ready.text
        callers.all_answer()
        service.call("POST", "/api/detectors", {"name": "the directory answers"})
        nodes.start_control_store()
        until(lambda: not service.call("GET", "/readyz")["problems"])
        created = service.call("POST", "/api/detectors", {"name": "another"})["id"]
        event = {"event": {"fields": {}, "timestamp_ms": 1}}
        service.call("POST", f"/api/detectors/{created}/evaluate", event)
        callers.end()
        for caller in callers.callers:
            assert set(caller.outcomes) == {"200"}


# Ray's own library also ends the process, on a busy machine sometimes first.
@pytest.mark.ray
@pytest.mark.long
def test_one_that_has_lost_its_memory_ends_the_service_in_words(tmp_path):
    with ray_cluster(tmp_path, nodes=1, **PATIENT) as nodes, service_on(nodes, tmp_path / "data") as service:
        nodes.kill_control_store()
        nodes.start_control_store()
        assert service.process.wait(END_WITHIN_S) == 1
        assert "started again without what it knew" in service.said()
        assert "Traceback" not in service.said()
