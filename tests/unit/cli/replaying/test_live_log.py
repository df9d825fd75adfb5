"""`tail -F FILE | rule-detector replay -`: lines without a year that come while it runs are of this one."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from engine import Detector
from tests.unit.cli.delivering.feeds import served
from tests.unit.cli.fake_service import FakeService

PATTERN: Final = "^(?P<time>.{15}) host sshd: Failed password for (?P<user>.*)$"
DEADLINE_S: Final = 120


def logged(user: str) -> str:
    """A line as syslog writes it now, in UTC."""
    return f"{time.strftime('%b %e %H:%M:%S', time.gmtime())} host sshd: Failed password for {user}\n"


class Seen:
    """Sees the events that the service evaluates."""

    def __init__(self) -> None:
        self.times_s: dict[str, float] = {}
        self.news = threading.Condition()

    def observe(self, fields: dict[str, str], timestamp_ms: float, _: object) -> None:
        with self.news:
            self.times_s[fields["user"]] = timestamp_ms / 1_000
            self.news.notify_all()

    def await_user(self, user: str) -> None:
        with self.news:
            assert self.news.wait_for(lambda: user in self.times_s, DEADLINE_S)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def url(seen: Seen) -> Iterator[str]:
    """The address of a service whose detector refuses what is late or ahead, as a running one does."""
    service = FakeService()
    detector = Detector(now_us=lambda: time.time_ns() // 1_000)
    service.detectors[service.create("shop")] = detector
    detector.add_rule("failed", "user == user")
    detector.observers.append(seen)

    async def answer(request: httpx.Request) -> httpx.Response:
        return service(request)

    with served(answer) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.slow
def test_lines_that_are_newer_than_the_command_are_of_this_year(url: str, seen: Seen, tmp_path: Path) -> None:
    log = tmp_path / "auth.log"
    log.write_text(logged("ada"))
    program = Path(sys.executable).with_name("rule-detector")
    command = [program, *f"replay - --detector shop --token t --url {url} --pattern".split(), PATTERN]
    begun_s = int(time.time())
    with subprocess.Popen(["tail", "-n", "+1", "-F", log], stdout=subprocess.PIPE) as tail:
        run = subprocess.Popen(
            command, stdin=tail.stdout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            seen.await_user("ada")
            # Syslog counts whole seconds; the second line's is later than the command's start.
            time.sleep(1.1)
            with log.open("a") as file:
                file.write(logged("bob"))
            seen.await_user("bob")
        finally:
            tail.kill()
            output, _ = run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 0, output
    assert "refused" not in output
    assert begun_s - 1 <= seen.times_s["ada"] < seen.times_s["bob"] <= time.time()
