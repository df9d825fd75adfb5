"""The page about delivering is true: its programs run, and what it shows is what is sent."""

import json
import re
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import api
from api.cli.delivering.deliveries import Figures
from api.cli.delivering.templates import FORMS, PLACEHOLDERS
from rule_detector_client import Client, Detector, Firing, Gap
from tests.unit.cli.delivering.feeds import Feeds, served

PAGE = (Path(api.__file__).parent / "DELIVERING.md").read_text("utf-8")


def block(name: str) -> str:
    """The code below the comment of that name."""
    [found] = re.findall(rf"<!-- {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    return found


def program(name: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(block(name), "DELIVERING.md", "exec"), names)
    return names


@pytest.fixture
def feeds() -> Feeds:
    return Feeds(look_s=0.01)


@contextmanager
def client_of(feeds: Feeds) -> Iterator[Client]:
    with served(feeds) as port, Client(f"http://127.0.0.1:{port}", "t") as client:
        yield client


def test_the_generic_document_is_the_one_that_is_sent() -> None:
    shown = json.loads(block("generic"))
    detector = Detector(shown.pop("detectorId"), shown.pop("detector"))
    firing = Firing(rule_id=shown.pop("ruleId"), **shown)
    assert FORMS["generic"].body(detector, firing).decode() == block("generic").strip()


def test_the_page_has_all_placeholders_and_all_metrics() -> None:
    assert {f"`${name}`" for name in PLACEHOLDERS} <= set(re.findall(r"`\$\w+`", PAGE))
    figures = Figures()
    figures.follow("d", 1)
    named = {
        sample.name
        for metric in figures.registry.collect()
        for sample in metric.samples
        if "deliver" in sample.name and not sample.name.endswith("_created")
    }
    assert set(re.findall(r"^\| `(rule_\w+)` \|", PAGE, re.MULTILINE)) == named


def test_the_signature_is_checked_as_the_page_has_it() -> None:
    is_genuine = program("the signature")["is_genuine"]
    # As `openssl dgst -sha256 -hmac key` has it.
    right = "sha256=515aae133b435d4000956731f68ae5cf5eb85d4f0dc6a546d2bfcd3595ec1ae1"
    assert is_genuine(b"key", b"body", right)
    for wrong in (right.upper(), right[:-1], right.removeprefix("sha256="), None, "", "sha256=é"):
        assert not is_genuine(b"key", b"body", wrong)
    assert not is_genuine(b"kex", b"body", right)
    assert not is_genuine(b"key", b"bodx", right)


class FirstOf:
    """A client whose feeds end after so many entries."""

    def __init__(self, client: Client, count: int) -> None:
        self.client, self.count = client, count
        self.last_firing = client.last_firing

    def firings(self, detector_id: str, after: int) -> Iterator[Firing | Gap]:
        return islice(self.client.firings(detector_id, after), self.count)


def test_firings_are_stored_exactly_once_in_a_database(
    feeds: Feeds, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = feeds.detector("shop", before=7)
    feeds.kept = 5
    store = program("a database")["store"]
    for count in (3, 2, 1):
        with client_of(feeds) as client, closing(sqlite3.connect(tmp_path / "firings.db")) as database:
            store(FirstOf(client, count), one, database)
    with closing(sqlite3.connect(tmp_path / "firings.db")) as database:
        rows = database.execute("select seq, keys from firings").fetchall()
    assert rows == [(seq, '{"user": "ada"}') for seq in range(3, 8)]
    assert capsys.readouterr().out == "1 to 2 are gone\n"


@contextmanager
def mail_server(mails: list[str]) -> Iterator[int]:
    """Serve SMTP on a socket of this machine; give the port."""

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connected, _ = listener.accept()
            except OSError:
                return
            with connected, connected.makefile("rwb") as file:

                def say(line: bytes, file: Any = file) -> None:
                    file.write(line + b"\r\n")
                    file.flush()

                say(b"220 ready")
                while line := file.readline():
                    if line.upper().startswith(b"DATA"):
                        say(b"354 go on")
                        lines = iter(file.readline, b".\r\n")
                        mails.append(b"".join(lines).decode())
                    say(b"250 done" if not line.upper().startswith(b"QUIT") else b"221 bye")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Closing alone does not end `accept`.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(30)


def test_a_mail_is_sent_for_each_firing_before_its_place_is_kept(feeds: Feeds, tmp_path: Path) -> None:
    one, mails = feeds.detector("shop", before=3), list[str]()
    (tmp_path / "place").write_text("1")
    send_mails = program("a mail")["send_mails"]
    with mail_server(mails) as port, client_of(feeds) as client:
        send_mails(FirstOf(client, 2), one, tmp_path / "place", "127.0.0.1", port)
    assert ["Subject: forced: {'user': 'ada'}" in mail for mail in mails] == [True, True]
    assert (tmp_path / "place").read_text() == "3"
    feeds.fire(one)
    with client_of(feeds) as client, pytest.raises(ConnectionRefusedError):
        send_mails(FirstOf(client, 1), one, tmp_path / "place", "127.0.0.1", port)
    assert (tmp_path / "place").read_text() == "3"
