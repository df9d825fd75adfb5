"""A loaded cluster is upgraded node by node to a release with the next protocol; nothing is refused."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.runtime.contract.build import SPOKEN
from tests.integration.cluster.test_node_checks_ray import ROOT, another
from tests.integration.cluster.test_services_share import directory_pid
from tests.node_deaths import TOKEN, Callers, counting_detector
from tests.ray_cluster import ray_cluster
from tests.service_process import END_WITHIN_S, Served, program, served, until


def places(service: Served) -> dict[str, str]:
    """The node of each active detector; none while the directory itself moves."""
    response = service.request("GET", "/api/cluster")
    if response.status_code == 503:
        return {}
    return {
        detector["id"]: worker["node"]
        for worker in response.json()["result"]["workers"]
        for detector in worker.get("detectors", [])
    }


def release_of(pid: int) -> Path:
    """The folder from which a process imports the packages."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    (found,) = [one.removeprefix(b"PYTHONPATH=") for one in variables if one.startswith(b"PYTHONPATH=")]
    return Path(found.decode().split(":")[0])


@pytest.mark.ray
@pytest.mark.long
def test_a_loaded_cluster_is_upgraded_node_by_node_and_nothing_is_refused(tmp_path: Path) -> None:
    old = ROOT
    new = another(tmp_path / "new", f"oldest={SPOKEN.current}, current={SPOKEN.current + 1}")
    data = tmp_path / "data"
    with ray_cluster(tmp_path, nodes=1, head_cpus=0, PYTHONPATH=str(old)) as cluster, ExitStack() as stack:

        def start(package: Path) -> Served:
            service = stack.enter_context(
                served(
                    data,
                    *("--ray-address", cluster.address, "--worker-cpus", "0.25"),
                    started_in=tmp_path,
                    PYTHONPATH=str(package),
                    RULE_DETECTOR_BOOTSTRAP_TOKEN=TOKEN,
                    RAY_AUTH_MODE="disabled",
                )
            )
            service.token = TOKEN
            return service

        def drained(node: str, other: str) -> None:
            run = program("drain", node, "--url", before.url, "--token", TOKEN)
            assert run.returncode == 0, run.stdout + run.stderr
            until(lambda: set(places(before).values()) == {other}, "a detector is left")
            cluster.remove(node)

        def served_on() -> None:
            for each in callers:
                each.until(20)

        nodes = [cluster.add(old), cluster.add(old)]
        before = start(old)
        ids = [counting_detector(before, f"d{number}") for number in range(3)]
        callers = [Callers(each) for each in ids]
        try:
            stops = [each.call(before, "before") for each in callers]
            served_on()
            # A front end of the next release calls the directory and the workers of this one.
            after = start(new)
            assert "they work together until the upgrade is over" in after.said()
            for each in callers:
                each.call(after, "after")
            served_on()
            assert release_of(directory_pid(data)) == old
            # A front end of this release calls workers of the next, and in the end its directory.
            for place, node in enumerate(list(nodes)):
                drained(node, nodes[1 - place])
                nodes[place] = cluster.add(new)
                moved = before.call("POST", f"/api/detectors/{ids[0]}/move", {"node": nodes[place]})
                assert moved["node"] == nodes[place]
                served_on()
            assert set(places(before).values()) <= set(nodes)
            assert release_of(directory_pid(data)) == new
            # Each knows the other's tokens and detectors.
            made = before.call("POST", "/api/detectors", {"name": "late"})["id"]
            assert made in {one["id"] for one in after.call("GET", "/api/detectors")}
            for stop in stops:
                stop.set()
            before.send(signal.SIGTERM)
            assert before.process.wait(END_WITHIN_S) == 0
            served_on()
        finally:
            for each in callers:
                each.end()
        for each in callers:
            assert set(each.outcomes) == {"before 200", "after 200"}, each.outcomes
            assert each.acknowledged == each.counted(after) == each.sent
        longest_s = [each.longest_s for each in callers]
        assert after.end() == 0
    print(f"longest waits for an answer {longest_s} s")
