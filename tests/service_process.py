"""Starts the service as a process, like its users."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

PROGRAM = str(Path(sys.executable).with_name("rule-detector"))
START_WITHIN_S = 120
END_WITHIN_S = 90
REVOKED_WITHIN_S = 1.5
"""A second, after which a revoked token is refused everywhere, and some time for a busy machine."""
DEADLINE_S = 120
"""The deadline of a request. On a busy machine, Ray takes a while to start a worker."""
DEFAULTS = {"RULE_DETECTOR_DEADLINE_S": str(DEADLINE_S)}
"""The default settings of `served`."""
_OF_A_SERVICE = ("RULE_DETECTOR_", "RAY_")


def refused_in_time(ask: Callable[[], int]) -> None:
    """Send requests with a token that was just revoked until the status is 401.

    Only the beginning of a request counts, because a busy machine may take long to answer.
    """
    revoked_s = began_s = time.monotonic()
    while (status := ask()) != 401:
        assert status == 200
        assert began_s < revoked_s + REVOKED_WITHIN_S, "a revoked token is still trusted"
        began_s = time.monotonic()


def until(condition: Callable[[], Any], what: str = "it did not come to be", within_s: float = 60.0) -> None:
    """Wait until a condition holds that no event reports."""
    give_up_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < give_up_s, what
        time.sleep(0.05)


def environment(**more: str) -> dict[str, str]:
    """Return the environment without settings for other services, or for a Ray inside this process."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OF_A_SERVICE)}
    return {**inherited, "PYTHONUNBUFFERED": "1", "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", **more}


def program(*arguments: str, given: bytes = b"", **more: str) -> "subprocess.CompletedProcess[str]":
    """Run one command to its end."""
    run = subprocess.run(
        [PROGRAM, *arguments],
        input=given,
        capture_output=True,
        check=False,
        timeout=170,
        env=environment(**more),
    )
    return subprocess.CompletedProcess(run.args, run.returncode, run.stdout.decode(), run.stderr.decode())


@dataclass
class Process:
    """A running command, and its output so far."""

    process: "subprocess.Popen[bytes]"
    output: Path

    def said(self) -> str:
        return self.output.read_text("utf-8")

    def wait_for(self, pattern: str, within_s: float = START_WITHIN_S) -> "re.Match[str]":
        """Return the first match of the pattern in the output."""
        give_up_s = time.monotonic() + within_s
        while time.monotonic() < give_up_s:
            ended = self.process.poll() is not None
            if found := re.search(pattern, self.said()):
                return found
            assert not ended, f"ended with {self.process.returncode}:\n{self.said()}"
            time.sleep(0.05)
        raise AssertionError(f"`{pattern}` did not come; what came is:\n{self.said()}")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and return the exit status."""
        self.send(number)
        return self.process.wait(END_WITHIN_S)


@contextmanager
def started(
    output: Path,
    *arguments: str,
    start_new_session: bool = False,
    started_in: Path | None = None,
    **more: str,
) -> Iterator[Process]:
    """Yield a running command, which is killed at the end if it still runs."""
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=started_in,
            env=environment(**more),
            start_new_session=start_new_session,
        )
    try:
        yield Process(process, output)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass
class Served(Process):
    """A service that is ready."""

    url: str = ""
    token: str = ""
    client: httpx.Client | None = None

    def request(
        self, method: str, path: str, document: object = None, token: str | None = None
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        # One client for all requests, because creating one takes longer than most requests.
        if self.client is None:
            self.client = httpx.Client(timeout=DEADLINE_S + 10, trust_env=False)
        return self.client.request(method, self.url + path, json=document, headers=headers)

    def call(self, method: str, path: str, document: object = None) -> Any:
        """Return the result of a successful operation."""
        response = self.request(method, path, document)
        envelope = response.json()
        assert envelope["success"], envelope
        return envelope["result"]


@contextmanager
def served(
    folder: Path,
    *options: str,
    start_new_session: bool = False,
    started_in: Path | None = None,
    **more: str,
) -> Iterator[Served]:
    """Yield a service on a free port with its data in `folder`. Its token is known at its first start."""
    output = folder.with_suffix(f".{time.monotonic_ns()}.log")
    arguments = ["serve", "--port", "0", "--data", str(folder), *options]
    more = DEFAULTS | more
    with started(
        output, *arguments, start_new_session=start_new_session, started_in=started_in, **more
    ) as running:
        url = running.wait_for(r"Listening on (https?://\S+?);")[1]
        token = re.search(r"rd_[A-Za-z0-9_-]{43}", running.said())
        service = Served(running.process, output, url, token[0] if token else "")
        try:
            yield service
        finally:
            if service.client is not None:
                service.client.close()
