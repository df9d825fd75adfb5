"""A running service whose processes can be found and killed, and a client that retries."""

import contextlib
import secrets
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests import process_table
from tests.service_process import Served, served

DEADLINE_S = 10
ANSWER_WITHIN_S = DEADLINE_S + 10.0
RESTART_WITHIN_S = 60.0

WORKER, DIRECTORY, SERVICE = "a worker", "the directory", "the whole service"


@dataclass
class Tally:
    """What happened while processes were killed."""

    kills: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """Requests that had no answer, by code, or `cut off`."""
    checked: int = 0
    detectors: int = 0
    away_s: list[float] = field(default_factory=list)
    """How long detectors were unavailable, from the death of their worker to the next answer."""
    restarts_s: list[float] = field(default_factory=list)
    slowest_s: float = 0.0
    tokens_checked: int = 0
    catalogue_checked: int = 0

    def lines(self) -> list[str]:
        """Return a number and its name a line."""
        median = statistics.median(self.away_s) if self.away_s else 0.0
        restarts = ", ".join(f"{one:.1f}" for one in self.restarts_s)
        return [
            f"{self.kills.total():7d}  kills",
            *(f"{count:7d}  - {name}" for name, count in self.kills.most_common()),
            f"{self.detectors:7d}  detectors",
            *(f"{count:7d}  requests refused with {name}" for name, count in self.refused.most_common()),
            *(f"{count:7d}  {name}" for name, count in self.outcomes.most_common()),
            f"{self.checked:7d}  answers checked",
            f"{self.tokens_checked:7d}  tokens and {self.catalogue_checked} detectors looked after",
            f"{0:7d}  lost",
            f"{self.slowest_s:7.2f}  s, the slowest answer",
            f"{median:7.2f}  s away in the median of {len(self.away_s)}",
            f"{max(self.away_s, default=0.0):7.2f}  s away at worst",
            f"{len(self.restarts_s):7d}  restarts of the whole service, in {restarts} s",
        ]


class CutOff(Exception):
    """There was no answer, so it is unknown whether it was done."""


class NotDone(Exception):
    """The service said that nothing was done, and to retry."""


class RunningService:
    """The service; after it is killed, the next one on the same folder."""

    def __init__(self, data: Path, tally: Tally) -> None:
        self.data = data
        self.tally = tally
        self.token = "rd_" + secrets.token_urlsafe(32)
        self.url = ""
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.restarted_at_s: list[float] = []
        self._ends: list[contextlib.ExitStack] = []
        self.service: Served | None = None

    def start(self) -> None:
        """Start the service; retry while the previous one is still ending."""
        begun_s = time.monotonic()
        while True:
            stack = contextlib.ExitStack()
            try:
                self.service = stack.enter_context(
                    served(
                        self.data,
                        *("--deadline-s", str(DEADLINE_S), "--snapshot-interval-s", "1", "--spares", "2"),
                        RULE_DETECTOR_BOOTSTRAP_TOKEN=self.token,
                    )
                )
            except AssertionError as error:
                if "is in use" not in str(error) or time.monotonic() > begun_s + RESTART_WITHIN_S:
                    raise
                continue
            self._ends.append(stack)
            self.url = self.service.url
            return

    def pids(self, what: str) -> list[int]:
        """Return the service's processes of a kind."""
        assert self.service is not None
        if what == WORKER:
            return process_table.workers(self.service.process.pid)
        below = process_table.family(self.service.process.pid)
        return [pid for pid in below if process_table.command(pid).startswith("ray::DirectoryActor")]

    def active_in(self, pid: int) -> str | None:
        """Return the detector whose journal a process has open."""
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    target = entry.readlink()
                    if target.name.startswith("journal-") and target.parent.parent.name == "detectors":
                        return target.parent.name
        return None

    def kill_the_service(self) -> None:
        """Kill the service's main process, and start another service on its folder."""
        assert self.service is not None
        self.service.process.send_signal(signal.SIGKILL)
        begun_s = time.monotonic()
        self.restarted_at_s.append(begun_s)
        self.service.process.wait()
        self.tally.kills[SERVICE] += 1
        self.start()
        self.tally.restarts_s.append(time.monotonic() - begun_s)

    def close(self) -> None:
        for stack in reversed(self._ends):
            stack.close()


class RetryingClient:
    """Calls the service, and retries."""

    def __init__(self, service: RunningService) -> None:
        self.service = service
        self._client = httpx.Client(timeout=ANSWER_WITHIN_S, trust_env=False)

    def request(
        self, method: str, path: str, document: object = None, *, key: str = "", token: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Send one request; return status and envelope. Raises CutOff and NotDone, after a short pause."""
        tally = self.service.tally
        headers = {"Authorization": f"Bearer {token or self.service.token}"}
        if key:
            headers["Idempotency-Key"] = key
        begun_s = time.monotonic()
        try:
            response = self._client.request(method, self.service.url + path, json=document, headers=headers)
        except httpx.TimeoutException as error:
            raise AssertionError(f"{method} {path} had no answer within {ANSWER_WITHIN_S} s") from error
        except httpx.TransportError as error:
            with self.service.lock:
                tally.refused["a connection that was cut off"] += 1
            time.sleep(0.05)
            raise CutOff from error
        with self.service.lock:
            tally.slowest_s = max(tally.slowest_s, time.monotonic() - begun_s)
        envelope = response.json()
        codes = {entry["code"] for entry in envelope["errors"]}
        if codes & {1501, 1502, 1503}:
            with self.service.lock:
                tally.refused[str(*codes)] += 1
            time.sleep(0.02)
            raise CutOff(envelope) if 1502 in codes else NotDone(envelope)
        return response.status_code, envelope

    def until_answered(self, method: str, path: str, document: object = None, **more: str) -> Any:
        """Repeat a request until it is answered; return status and envelope."""
        give_up_s = time.monotonic() + RESTART_WITHIN_S
        while time.monotonic() < give_up_s:
            with contextlib.suppress(CutOff, NotDone):
                return self.request(method, path, document, **more)
        raise AssertionError(f"{method} {path} had only refusals for {RESTART_WITHIN_S} s")

    def close(self) -> None:
        self._client.close()


@contextmanager
def running_service(data: Path, tally: Tally) -> Iterator[RunningService]:
    """Start a service that can be killed; at the end, stop the last one."""
    made = RunningService(data, tally)
    made.start()
    try:
        yield made
    finally:
        made.over.set()
        made.close()
