"""Several services on one folder in one encrypted cluster: each may stop, die or lose the directory."""

import contextlib
import os
import shutil
import signal
import socket
import ssl
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import process_table
from tests.certificates import certificates
from tests.node_deaths import TOKEN, Callers
from tests.ray_cluster import ray_cluster
from tests.service_process import END_WITHIN_S, Served, refused_in_time, served, until

EVENT = {"event": {"fields": {}, "timestamp_ms": 1_700_000_000_000}}


def directory_pid(folder: Path) -> int:
    """The process that holds the folder's lock."""
    (pid,) = process_table.holders(lambda path: path == folder / "lock")
    return pid


def talk(address: str) -> None:
    """Shake hands without a certificate."""
    host, port = address.rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain) as encrypted,
    ):
        # The handshake of TLS 1.3 is over before the server sees the certificate.
        encrypted.send(b"PRI * HTTP/2.0")
        if not encrypted.recv(1):
            raise ConnectionResetError("the server has ended the connection")


def transports(service: Served) -> set[str]:
    """How workers are connected. A worker too busy to answer in time is shown without connections."""
    workers = service.call("GET", "/api/cluster")["workers"]
    return {transport for worker in workers for transport in worker.get("connections", {})}


@pytest.mark.ray
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl makes certificates")
def test_two_services_serve_one_folder_and_lose_nothing_through_stops_kills_and_a_new_directory(tmp_path):
    data = tmp_path / "data"
    variables = certificates(tmp_path / "certificates")
    more = {"RULE_DETECTOR_BOOTSTRAP_TOKEN": TOKEN, "RAY_AUTH_MODE": "disabled", **variables}
    with ExitStack() as stack:
        address = stack.enter_context(ray_cluster(tmp_path, **variables)).address
        # The cluster speaks TLS, and only with clients that have a certificate.
        with pytest.raises((ssl.SSLError, ConnectionError)):
            talk(address)

        def start(max_resident: int = 20) -> Served:
            options = ("--ray-address", address, "--max-resident", str(max_resident))
            service = stack.enter_context(served(data, *options, **more))
            service.token = TOKEN
            return service

        one, other = start(), start(30)
        assert "not in force" not in one.said()
        other.wait_for(r"--max-resident 30 is not in force: .* has 20")
        # Enough for Ray to place workers on both nodes.
        detector, *_ = ids = [one.call("POST", "/api/detectors", {"name": f"d{n}"})["id"] for n in range(4)]
        for each in ids:
            other.call("POST", f"/api/detectors/{each}/evaluate", EVENT)
        until(lambda: "tls" in transports(one), "no connection is shown to be encrypted")
        assert "tcp" not in transports(one)
        rules = f"/api/detectors/{detector}/rules"
        other.call("POST", rules, {"name": "many", "condition": "distinct(n) > 9999"})
        # A token revoked through one is refused by the other within a second.
        minted = one.call("POST", "/api/token")

        def evaluated() -> int:
            # Unlike the list of detectors, this needs no other process.
            path = f"/api/detectors/{detector}/evaluate"
            return other.request("POST", path, EVENT, token=minted["token"]).status_code

        assert evaluated() == 200
        one.call("DELETE", f"/api/token/{minted['id']}")
        refused_in_time(evaluated)

        callers = Callers(detector)
        try:
            callers.call(one, "one")
            stop_other = callers.call(other, "other")
            callers.until(50)

            # The directory dies: active detectors are still served, and a successor adopts them.
            before = directory_pid(data)
            os.kill(before, signal.SIGKILL)
            died_s = time.monotonic()
            one.call("POST", "/api/detectors", {"name": "two"})
            successor_s = time.monotonic() - died_s
            assert directory_pid(data) != before
            callers.until(50)
            assert set(callers.outcomes) == {"one 200", "other 200"}

            # The directory is stopped, as on a node that is cut off.
            stopped = directory_pid(data)
            os.kill(stopped, signal.SIGSTOP)
            stopped_s = time.monotonic()
            one.call("POST", "/api/detectors", {"name": "three"})
            replaced_s = time.monotonic() - stopped_s
            with contextlib.suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGCONT)
            callers.until(50)
            assert set(callers.outcomes) == {"one 200", "other 200"}

            # A rolling restart of the second service: another one starts, then it is asked to stop.
            third = start()
            callers.call(third, "third")
            callers.until(50)
            other.send(signal.SIGTERM)
            callers.until(30)
            stop_other.set()
            assert other.process.wait(END_WITHIN_S) == 0
            callers.until(50)
            lost = {name for name in callers.outcomes if not name.endswith(" 200")}
            # Once it no longer listens, a caller cannot connect, and knows this.
            assert lost <= {"other ConnectError"}

            # The death of the first one ends its own connections only.
            one.send(signal.SIGKILL)
            callers.until(50)
            assert third.request("GET", "/readyz").status_code == 200
        finally:
            callers.end()
        lost = {name for name in callers.outcomes if name.startswith("third") and name != "third 200"}
        assert not lost
        assert len(third.call("GET", "/api/detectors")) == 6

        # The last service to leave saves all, and a new one loads it.
        evaluated = callers.counted(third)
        assert callers.acknowledged <= evaluated <= callers.sent
        assert third.end() == 0
        fourth = start()
        assert callers.counted(fourth) == evaluated
        assert fourth.end() == 0
    print(f"a killed directory was replaced in {successor_s:.1f} s, a stopped one in {replaced_s:.1f} s")
    print(f"longest wait for an answer: {callers.longest_s:.2f} s; outcomes: {dict(callers.outcomes)}")
