"""The certificate of the front door follows its files, and whatever is wrong with them changes nothing."""

import logging
import os
import resource
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from api.process.certificates import Certificates
from api.process.listening import StartError
from tests.certificates import certificates


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with a certificate and its key."""
    folder = tmp_path_factory.mktemp("signed")
    for name in ("old", "new"):
        certificates(folder / name)
    return {name: folder / name for name in ("old", "new")}


class Files:
    """The two files that a service is given, and what replaces them."""

    def __init__(self, folder: Path, signed: dict[str, Path]) -> None:
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        self._signed = signed

    def put(self, cert: str | None = None, key: str | None = None) -> None:
        for path, name, end in ((self.cert, cert, "crt"), (self.key, key, "key")):
            if name is not None:
                shutil.copy(self._signed[name] / f"node.{end}", path.with_suffix(".next"))
                path.with_suffix(".next").replace(path)


@pytest.fixture
def files(tmp_path: Path, signed: dict[str, Path]) -> Files:
    files = Files(tmp_path, signed)
    files.put("old", "old")
    return files


def shown(context: ssl.SSLContext) -> bytes:
    """The certificate that a handshake shows, as PEM."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with context.wrap_socket(ours, server_side=True) as there:
            there.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    caller = ssl.create_default_context()
    caller.check_hostname, caller.verify_mode = False, ssl.CERT_NONE
    with caller.wrap_socket(theirs) as here:
        found = here.getpeercert(binary_form=True)
        here.send(b"x")
    thread.join()
    assert found is not None
    return ssl.DER_cert_to_PEM_cert(found).encode()


def leaf(folder: Path) -> bytes:
    return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert((folder / "node.crt").read_text())).encode()


def test_a_new_pair_is_taken_over_once_both_are_there(files: Files, signed: dict[str, Path], caplog) -> None:
    caplog.set_level(logging.WARNING)
    one = Certificates(files.cert, files.key)
    old, new = leaf(signed["old"]), leaf(signed["new"])
    one.follow_once()
    assert shown(one.context) == old
    files.put(key="new")
    for _ in range(3):
        one.follow_once()
    assert shown(one.context) == old
    [said] = [record.message for record in caplog.records if "do not fit each other" in record.message]
    assert said.endswith("; the earlier certificate stays in use"), "it is said once"
    files.put(cert="new")
    one.follow_once()
    assert shown(one.context) == new


@pytest.mark.parametrize("wrong", ["missing", "empty", "cut", "garbage", "a pipe", "a loop"])
def test_wrong_files_keep_the_earlier_certificate(
    files: Files, signed: dict[str, Path], wrong: str, caplog
) -> None:
    caplog.set_level(logging.WARNING)
    one = Certificates(files.cert, files.key)
    content = files.cert.read_bytes()
    match wrong:
        case "missing":
            files.cert.unlink()
        case "empty":
            files.cert.write_bytes(b"")
        case "a pipe":
            files.cert.unlink()
            os.mkfifo(files.cert)
        case "a loop":
            files.cert.unlink()
            files.cert.symlink_to(files.cert)
        case "cut":
            files.cert.write_bytes(content[: len(content) // 2])
        case _:
            files.key.write_bytes(b"no key")
    for _ in range(3):
        one.follow_once()
        assert one.stale
    assert shown(one.context) == leaf(signed["old"])
    assert len(caplog.records) == 1
    files.put("new", "new")
    one.follow_once()
    assert not one.stale
    assert shown(one.context) == leaf(signed["new"])


def test_files_that_could_not_be_read_for_a_while_are_read_although_they_did_not_change(
    files: Files, signed: dict[str, Path], caplog
) -> None:
    caplog.set_level(logging.WARNING)
    one = Certificates(files.cert, files.key)
    files.put("new", "new")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        for _ in range(3):
            one.follow_once()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    [said] = [record.message for record in caplog.records]
    assert "too many open files; the earlier certificate stays in use" in said
    one.follow_once()
    assert shown(one.context) == leaf(signed["new"])


def test_a_pipe_and_a_folder_are_refused_at_the_start_and_named(files: Files, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "folder"):
        with pytest.raises(StartError, match=f"{name}: not a regular file"):
            Certificates(files.cert, tmp_path / name)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(files: Files, tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    command = ["openssl", "pkey", "-in", files.key, "-aes256", "-passout", "pass:x1234", "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(StartError, match="no certificate and its key"):
        Certificates(files.cert, locked)
