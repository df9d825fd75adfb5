"""The front end over TLS, and a separate listener for metrics: real processes, openssl and curl."""

import os
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest

from rule_detector_client import Client, Event, ServiceError, calls
from tests.certificates import certificates
from tests.service_process import program, served

pytestmark = pytest.mark.ray


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two folders, each with a certificate authority and what it signed."""
    folders = [tmp_path_factory.mktemp("certificates") / name for name in ("first", "second")]
    for folder in folders:
        certificates(folder)
    return folders[0], folders[1]


def curl(url: str, *options: object) -> subprocess.CompletedProcess[str]:
    command = ["curl", "-sS", "-m", "20", *map(str, options), url]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def issuer_at(url: str) -> bytes:
    """The certificate that a new connection gets."""
    host, _, port = url.removeprefix("https://").partition(":")
    return ssl.get_server_certificate((host, int(port))).encode()


@pytest.mark.parametrize("front_ends", [pytest.param(1, marks=pytest.mark.long), 2])
def test_requests_come_over_tls_and_a_new_certificate_is_taken_over_and_metrics_have_their_own_listener(
    front_ends: int, tmp_path: Path, authorities: tuple[Path, Path]
) -> None:
    for name in ("node.crt", "node.key"):
        shutil.copy(authorities[0] / name, tmp_path / name)
    files = ("--tls-cert", str(tmp_path / "node.crt"), "--tls-key", str(tmp_path / "node.key"))
    port = free_port()
    own = ("--metrics-host", "127.0.0.2", "--probe-port", str(port))
    first, second = (folder / "ca.crt" for folder in authorities)
    with served(tmp_path / "data", *files, *own, "--front-ends", str(front_ends)) as service:
        assert service.url.startswith("https://")
        healthz = f"{service.url}/healthz"
        assert '"alive":true' in curl(healthz, "--cacert", first).stdout
        assert curl(healthz, "--cacert", second).returncode == 60, "another authority"
        version = curl(healthz, "--cacert", first, "--http2", "-w", "%{http_version}").stdout
        assert version.endswith("1.1")
        assert curl(service.url.replace("https:", "http:")).returncode != 0

        def status(url: str) -> str:
            return curl(url, "--cacert", first, "-o", os.devnull, "-w", "%{http_code}").stdout

        assert status(f"http://127.0.0.2:{port}/metrics") == "200"
        assert status(f"http://127.0.0.2:{port}/healthz") == "200"
        assert status(f"http://127.0.0.1:{port}/metrics") == "000", "it listens at that address only"
        assert status(f"{service.url}/metrics") == "404"

        with Client(service.url, service.token, ca_file=first) as client:
            detector = client.send(calls.create_detector("d")).id
            client.send(calls.add_rule(detector, "r", "a == 1"))
            events = [Event({"a": number % 2}, number) for number in range(500)]
            assert sum(len(one.actions) for one in client.evaluate_many(detector, events)) == 250
            assert sum(len(one.actions) for one in client.stream(detector, events)) == 250
            before = issuer_at(service.url)
            for name in ("node.key", "node.crt"):
                # The key first: for a moment the two do not match.
                shutil.copy(authorities[1] / name, tmp_path / "new")
                (tmp_path / "new").replace(tmp_path / name)
                time.sleep(1.5)
            deadline_s = time.monotonic() + 20
            while issuer_at(service.url) == before:
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
            # The open connection continues.
            assert client.send(calls.list_detectors())[0].id == detector
        assert '"alive":true' in curl(healthz, "--cacert", second).stdout
        with (
            pytest.raises(ServiceError, match="is not trusted"),
            Client(service.url, service.token, ca_file=first, patience_s=0) as client,
        ):
            client.send(calls.list_detectors())
        listed = program(
            "detectors", "list", "--url", service.url, "--token", service.token, "--ca-file", str(second)
        )
        assert detector in listed.stdout
    alone = program("serve", "--data", str(tmp_path / "none"), "--metrics-host", "127.0.0.1")
    assert "probe_port" in alone.stderr


def test_files_that_are_wrong_end_the_start_with_their_names(
    tmp_path: Path, authorities: tuple[Path, Path]
) -> None:
    first, second = authorities
    for cert, key, said in (
        (first / "node.crt", second / "node.key", "they do not fit each other"),
        (tmp_path / "missing", first / "node.key", f"{tmp_path / 'missing'}: no such file or directory"),
    ):
        files = ("--tls-cert", str(cert), "--tls-key", str(key))
        ended = program("serve", "--data", str(tmp_path / "data"), "--port", "0", *files)
        assert (ended.returncode, said in ended.stderr) == (1, True), ended.stderr
        assert "Traceback" not in ended.stderr
    alone = program("serve", "--data", str(tmp_path / "data"), "--tls-cert", str(first / "node.crt"))
    assert alone.returncode == 2
    assert "expected both" in alone.stderr
    assert not (tmp_path / "data").exists()
