"""Two services with other settings in a cluster of two nodes whose traffic is encrypted."""

import shutil
import socket
import ssl
import time
from contextlib import ExitStack
from typing import Any

import pytest

from tests.certificates import certificates
from tests.ray_cluster import ray_cluster
from tests.service_process import Served, program, served

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl makes certificates")

TOKEN = "rd_" + "t" * 43
EVENT = {"event": {"fields": {"a": 1}, "timestamp_ms": 1_700_000_000_000}}
DETECTORS = 6
SPARES = 2
"""So many that Ray places workers on both nodes."""
SHOWN_WITHIN_S = 60


@pytest.mark.ray
def test_services_that_share_a_folder_encrypt_between_nodes_and_say_which_settings_hold(tmp_path):
    variables = certificates(tmp_path / "certificates")
    more = {"RULE_DETECTOR_BOOTSTRAP_TOKEN": TOKEN, "RAY_AUTH_MODE": "disabled", **variables}
    with ExitStack() as stack:
        address = stack.enter_context(ray_cluster(tmp_path, **variables)).address
        # The cluster speaks TLS, and only with whoever has a certificate.
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _talk(address)

        def start(*options: str) -> Served:
            options = ("--ray-address", address, "--spares", str(SPARES), *options)
            service = stack.enter_context(served(tmp_path / "data", *options, **more))
            service.token = TOKEN
            return service

        one, other = start("--max-resident", "20"), start("--max-resident", "30", "--deadline-s", "20")
        assert "not in force" not in one.said()
        other.wait_for(r"--max-resident 30 is not in force: .* has 20")
        ids = [
            one.call("POST", "/api/detectors", {"name": f"d{number}"})["id"] for number in range(DETECTORS)
        ]
        for number, detector in enumerate(ids):
            one.call("POST", f"/api/detectors/{detector}/rules", {"name": "seen", "condition": "once a == 1"})
            for service in (one, other) if number % 2 else (other, one):
                assert service.call("POST", f"/api/detectors/{detector}/evaluate", EVENT)["actions"]

        # A worker that is too busy to say in time what its connections are is shown without them.
        give_up_s = time.monotonic() + SHOWN_WITHIN_S
        while "tls" not in (transports := _transports(shown := other.call("GET", "/api/cluster"))):
            assert time.monotonic() < give_up_s, f"connections by transport: {transports}"
            time.sleep(0.5)
        assert "tcp" not in transports
        (told,) = shown["other_settings"]
        assert told["pid"] == other.process.pid
        assert (told["setting"], told["in_force"], told["given"]) == ("--max-resident", "20", "30")
        listed = program("cluster", "--url", one.url, "--token", TOKEN)
        assert "--max-resident  30     20" in listed.stdout
        assert other.end() == 0
        assert one.call("GET", "/api/cluster")["other_settings"] == []
        assert one.end() == 0


def _talk(address: str) -> None:
    """Shake hands as somebody who has no certificate."""
    host, port = address.rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain) as encrypted,
    ):
        # The handshake of TLS 1.3 is over before the server has seen the certificate.
        encrypted.send(b"PRI * HTTP/2.0")
        if not encrypted.recv(1):
            raise ConnectionResetError("the server has ended the connection")


def _transports(shown: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for worker in shown["workers"]:
        for transport, number in worker.get("connections", {}).items():
            found[transport] = found.get(transport, 0) + number
    return found
