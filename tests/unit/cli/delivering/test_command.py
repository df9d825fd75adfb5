"""`rule-detector deliver` as its users run it: processes, signals, wrong usage, and what stays secret."""

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.cli.commands import run
from tests.unit.cli.delivering.feeds import Feeds, Receiver, Reset, served

WITHIN_S = 50.0
PROGRAM = [sys.executable, "-c", "from api.command import main; main()", "deliver"]


def until(holds: Callable[[], object]) -> None:
    ends_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.02)


class Delivering:
    """The program, which delivers from feeds to a receiver; all in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.feeds = Feeds(look_s=0.01)
        self.receiver = Receiver()
        self.state = folder / "state"

    def started(self, port: int, *options: str, through: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
        url = f"http://127.0.0.1:{port}"
        environment = {**os.environ, "RULE_DETECTOR_URL": url, "RULE_DETECTOR_TOKEN": "rd_secret"}
        return subprocess.Popen(
            [*through, *PROGRAM, "--state", str(self.state), *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @contextlib.contextmanager
    def running(self, port: int, *options: str) -> "Iterator[subprocess.Popen[bytes]]":
        program = self.started(port, *options)
        try:
            until(lambda: self.places.keys() == self.feeds.names.keys())
            yield program
        finally:
            program.kill()
            program.communicate()

    @property
    def places(self) -> dict[str, int]:
        return json.loads(self.state.read_bytes())["places"] if self.state.exists() else {}


@pytest.fixture
def delivering(tmp_path: Path) -> Delivering:
    return Delivering(tmp_path)


@pytest.mark.slow
def test_it_signs_what_it_sends_and_ends_on_a_signal_with_its_place_kept(delivering: Delivering) -> None:
    one = delivering.feeds.detector("logins")
    (delivering.folder / "key").write_text("the-key\n")
    (delivering.folder / "key").chmod(0o600)
    with served(delivering.feeds) as port, served(delivering.receiver) as hook:
        (delivering.folder / "to").write_text(f"http://127.0.0.1:{hook}/hidden\n")
        (delivering.folder / "to").chmod(0o600)
        options = ("--all", "--to-file", str(delivering.folder / "to"), "--metrics-port", "0")
        with delivering.running(port, *options, "--secret-file", str(delivering.folder / "key")) as program:
            assert program.stderr is not None
            metrics = re.search(rb"http://127.0.0.1:\d+/metrics", program.stderr.readline())
            assert metrics is not None
            delivering.feeds.fire(one, 2)
            until(lambda: len(delivering.receiver.taken) == 2)
            delivering.receiver.answer = lambda _body: httpx.Response(500)
            delivering.feeds.fire(one)
            until(lambda: len(delivering.receiver.requests) == 3)
            page = urllib.request.urlopen(metrics[0].decode()).read().decode()
            assert f'rule_detector_deliver_delivered_total{{detector="{one}"}} 2.0' in page
            program.send_signal(signal.SIGTERM)
            _, said = program.communicate(timeout=WITHIN_S)
            assert program.returncode == 0
    assert delivering.places == {one: 2}
    for request in delivering.receiver.requests:
        digest = hmac.new(b"the-key", request.content, hashlib.sha256).hexdigest()
        assert request.headers["X-Rule-Detector-Signature"] == f"sha256={digest}"
        assert request.headers["Content-Type"] == "application/json"
    keys = [request.headers["Idempotency-Key"] for request in delivering.receiver.requests]
    assert keys == [f'"{one}-{seq}"' for seq in (1, 2, 3)]
    told = said.decode()
    assert "logins: the firing 3 is not delivered yet" in told
    assert not re.search("hidden|the-key|rd_secret", told)


@pytest.mark.storm
def test_killed_and_restarted_beside_servers_that_come_and_go_it_loses_nothing(
    delivering: Delivering,
) -> None:
    """Each death is SIGKILL, at a moment of its own; the service and the receiver disappear in turn."""
    detectors = [delivering.feeds.detector(name) for name in "ab"]
    count = 0

    def answer(_body: Any) -> httpx.Response:
        nonlocal count
        count += 1
        if count % 3 == 0:
            raise Reset
        return httpx.Response(500 if count % 5 == 0 else 200)

    delivering.receiver.answer = answer

    def fire(times: int) -> None:
        for _ in range(times):
            for one in detectors:
                delivering.feeds.fire(one)

    with contextlib.ExitStack() as ports:
        port, hook = (
            ports.enter_context(served(delivering.feeds)),
            ports.enter_context(served(delivering.receiver)),
        )
        options = ("--all", "--to", f"http://127.0.0.1:{hook}")
        for killed_after in (1, 4):
            taken = len(delivering.receiver.taken)
            with delivering.running(port, *options) as program:
                fire(4)
                until(lambda: len(delivering.receiver.taken) >= taken + killed_after)
                program.kill()
        with delivering.running(port, *options) as program:
            ports.close()
            fire(2)
            with served(delivering.feeds, port):
                fire(2)
                with served(delivering.receiver, hook):
                    until(lambda: [*delivering.places.values()] == [12, 12])
                    program.send_signal(signal.SIGINT)
                    assert program.wait(WITHIN_S) == 0
    for one in detectors:
        highest = 0
        for seq in delivering.receiver.seqs(one):
            assert seq <= highest + 1
            highest = max(highest, seq)
        assert highest == 12


@pytest.mark.slow
def test_to_a_file_and_by_two_processes(delivering: Delivering) -> None:
    one, fired = delivering.feeds.detector("logins"), delivering.folder / "fired.ndjson"
    with served(delivering.feeds) as port, delivering.running(port, "--all", "--to", str(fired)) as program:
        second = delivering.started(port, "--all", "--to", str(fired))
        _, said = second.communicate(timeout=WITHIN_S)
        assert (second.returncode, b"another process delivers" in said) == (1, True)
        delivering.feeds.fire(one, 5)
        until(lambda: delivering.places == {one: 5})
        lines = [json.loads(line) for line in fired.read_bytes().splitlines()]
        assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5]
        delivering.feeds.revoked = True
        _, said = program.communicate(timeout=WITHIN_S)
        begun = f"Delivering what rules with `notify` fire to {fired}; Ctrl-C ends it.\n"
        assert said.decode() == f"{begun}rule-detector: 1101 the token is unknown or revoked\n"
        assert program.returncode == 1


@pytest.mark.slow
def test_to_standard_output_until_nobody_reads_it(delivering: Delivering) -> None:
    one = delivering.feeds.detector("logins")
    options = ("--detector", "logins", "--to", "-", "--template", "slack")
    with served(delivering.feeds) as port, delivering.running(port, *options) as program:
        delivering.feeds.fire(one, name="\x1b[31m")
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["text"].startswith("*\x1b[31m*")
        program.stdout.close()
        delivering.feeds.fire(one)
        assert program.wait(WITHIN_S) == 1


@pytest.mark.slow
def test_nothing_counts_as_delivered_to_a_closed_standard_output(delivering: Delivering) -> None:
    one = delivering.feeds.detector("logins")
    with served(delivering.feeds) as port:
        program = delivering.started(port, "--all", "--to", "-", through=("sh", "-c", 'exec "$0" "$@" >&-'))
        until(lambda: one in delivering.places)
        before = delivering.places[one]
        delivering.feeds.fire(one)
        _, said = program.communicate(timeout=WITHIN_S)
    assert (program.returncode, delivering.places[one]) == (1, before)
    assert b"standard output" in said


@pytest.mark.slow
def test_a_reader_that_does_not_read_delays_no_end_and_nothing_unwritten_counts(
    delivering: Delivering,
) -> None:
    one = delivering.feeds.detector("logins")
    with served(delivering.feeds) as port, delivering.running(port, "--all", "--to", "-") as program:
        size = fcntl.fcntl(program.stdout, fcntl.F_SETPIPE_SZ, 4096)
        delivering.feeds.fire(one, 500)
        line = len(json.dumps({**delivering.feeds.firings[one][0], "detectorId": one, "detector": "logins"}))
        until(lambda: _unread(program.stdout) > size - 2 * line)
        program.send_signal(signal.SIGTERM)
        assert program.wait(WITHIN_S) == 0
        lines = program.stdout.read().splitlines(keepends=True)
    assert 0 < delivering.places[one] <= sum(line.endswith(b"\n") for line in lines)


def _unread(pipe: Any) -> int:
    """How many bytes a pipe holds."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


# Wrong usage, and what is wrong at the start


def refused(options: str, status: int) -> str:
    said = run(f"deliver --url http://127.0.0.1:1 --token rd_secret {options}", status=status).output
    assert not re.search("hidden|rd_secret", said)
    return said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--to -", "Give either `--detector` or `--all`."),
        ("--to - --all --detector x", "Give either `--detector` or `--all`."),
        ("--all", "Give either `--to` or `--to-file`."),
        ("--all --to - --to-file secret", "Give either `--to` or `--to-file`."),
        ("--all --to http://", "no URL"),
        ("--all --to - --secret-file secret", "signs requests"),
        ("--all --to http://h --secret-file nowhere", "no such file"),
        ("--all --to - --template nowhere", "nowhere: no such file"),
        ("--all --to - --attempts 0", "attempts"),
    ],
)
def test_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("secret").write_text("http://h/hidden")
    Path("secret").chmod(0o600)
    assert said in refused(options, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--to -", "no service answers at http://127.0.0.1:1"),
        ("--to .", ".: is a directory"),
        ("--to - --state nowhere/state", "nowhere/state.lock: no such file"),
        ("--to - --state damaged", "damaged: it is damaged, or no file of `deliver`"),
        ("--to - --metrics-port 1 --metrics-host 192.0.2.1", "192.0.2.1:1: "),
    ],
)
def test_what_cannot_work_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("damaged").write_text("{")
    assert said in refused(f"--all {options}", 1)
