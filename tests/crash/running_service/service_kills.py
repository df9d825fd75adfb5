"""Kills processes of the running service under load, and checks that nothing answered is lost.

Concurrent clients record the answers, and a journal that keeps everything must explain them:
see tests/linearizability.
"""

import contextlib
import os
import random
import secrets
import signal
import statistics
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from tests import process_table
from tests.crash.model.history import Lost
from tests.linearizability.clients import Load, Subject
from tests.linearizability.journal import KEEP_ALL
from tests.linearizability.proof import judged
from tests.service_process import Served, served, until

WORKER, DIRECTORY, SERVICE = "a worker", "the directory", "the whole service"
CLIENTS: Final = 5
PAUSE_S: Final = 0.02
ANSWER_WITHIN_S: Final = 20.0
RESTART_WITHIN_S: Final = 60.0
_ALREADY_ANSWERED_S: Final = 0.01
"""An answer this soon after a kill may have been on its way before it."""
_OPTIONS: Final = (
    *("--deadline-s", "10", "--snapshot-interval-s", "1", "--spares", "2"),
    *("--snapshots-kept", str(KEEP_ALL)),
)


@dataclass
class Tally:
    """Statistics of a run that kills processes."""

    kills: Counter[str] = field(default_factory=Counter)
    checked: int = 0
    """How many answers of detectors were checked."""
    catalogue_checked: int = 0
    judgement: list[str] = field(default_factory=list)
    away_s: list[float] = field(default_factory=list)
    """How long detectors were unavailable, from the death of their worker to the next answer."""
    restarts_s: list[float] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return one number and its name per line."""
        median = statistics.median(self.away_s) if self.away_s else 0.0
        restarts = ", ".join(f"{one:.1f}" for one in self.restarts_s)
        return [
            f"{self.kills.total():7d}  kills",
            *(f"{count:7d}  - {name}" for name, count in self.kills.most_common()),
            *self.judgement,
            f"{self.catalogue_checked:7d}  tokens and detectors looked after",
            f"{median:7.2f}  s away in the median of {len(self.away_s)}",
            f"{max(self.away_s, default=0.0):7.2f}  s away at worst",
            f"{len(self.restarts_s):7d}  restarts of the whole service, in {restarts} s",
        ]


class Running:
    """The service; after it is killed, the next one on the same folder."""

    service: Served

    def __init__(self, data: Path, ends: ExitStack) -> None:
        self.data = data
        self.token = "rd_" + secrets.token_urlsafe(32)
        self._ends = ends
        self.start()

    def start(self) -> None:
        """Start the service; retry while the previous one is still ending."""
        give_up_s = time.monotonic() + RESTART_WITHIN_S
        bootstrap = {"RULE_DETECTOR_BOOTSTRAP_TOKEN": self.token}
        while True:
            try:
                self.service = self._ends.enter_context(served(self.data, *_OPTIONS, **bootstrap))
            except AssertionError as error:
                if "is in use" not in str(error) or time.monotonic() > give_up_s:
                    raise
            else:
                return

    @property
    def front(self) -> dict[str, tuple[str, int]]:
        """Where clients reach it."""
        address = urlsplit(self.service.url)
        return {"it": (str(address.hostname), address.port or 0)}

    def owners(self, subject: Subject) -> set[int]:
        """The process in which a detector is active: its journal is open there. None between two."""
        folder = self.data / "detectors" / subject.id
        return process_table.holders(
            lambda path: path.parent == folder and path.name.startswith("journal-")
        ) & process_table.family(self.service.process.pid)

    def directories(self) -> set[int]:
        """The process that has the folder's lock."""
        return process_table.holders(lambda path: path == self.data / "lock")

    def asked(
        self, method: str, path: str, document: object = None, token: str = ""
    ) -> httpx.Response | None:
        """Ask once; return the answer, or None if there was none, or a temporary refusal."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        url = self.service.url + path
        try:
            response = httpx.request(
                method, url, json=document, headers=headers, timeout=ANSWER_WITHIN_S, trust_env=False
            )
        except httpx.TransportError:
            return None
        return None if response.status_code >= 500 else response

    def answered(self, method: str, path: str, token: str = "") -> httpx.Response:
        """Ask until there is an answer. Only for requests that may be executed twice."""
        answers: list[httpx.Response | None] = []

        def ask() -> httpx.Response | None:
            answers.append(self.asked(method, path, token=token))
            return answers[-1]

        until(ask, f"{method} {path} has no answer", RESTART_WITHIN_S)
        assert answers[-1] is not None
        return answers[-1]


class Catalogue:
    """Mints and revokes tokens, creates and deletes detectors, and records what was acknowledged."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.tokens: dict[str, int] = {}
        """The status with which each token must be answered."""
        self.there: set[str] = set()
        self.deleted: set[str] = set()

    def work(self) -> None:
        """Create two of each, and undo one. Requests without an answer do not count."""
        asked = self.running.asked
        for undone in (False, True):
            if minted := _result(asked("POST", "/api/token")):
                if not undone:
                    self.tokens[minted["token"]] = 200
                elif asked("DELETE", f"/api/token/{minted['id']}"):
                    self.tokens[minted["token"]] = 401
            if created := _result(asked("POST", "/api/detectors", {"name": "catalogue"})):
                if not undone:
                    self.there.add(created["id"])
                elif asked("DELETE", f"/api/detectors/{created['id']}"):
                    self.deleted.add(created["id"])

    def check(self) -> int:
        """Return how many acknowledgements were checked. Raises Lost."""
        found = {one["id"] for one in self.running.answered("GET", "/api/detectors").json()["result"]}
        if missing := self.there - found:
            raise Lost(f"detectors that were acknowledged are not there: {missing}")
        if back := self.deleted & found:
            raise Lost(f"detectors whose deletion was acknowledged are there: {back}")
        for token, status in self.tokens.items():
            answer = self.running.answered("GET", "/api/detectors", token)
            if answer.status_code != status:
                raise Lost(f"a token is answered with {answer.status_code} and not {status}")
        return len(self.there) + len(self.deleted) + len(self.tokens)


def _result(response: httpx.Response | None) -> Any:
    return None if response is None else response.json()["result"]


def planned(chance: random.Random, kills: int, services: int) -> list[str]:
    """Plan the target of each kill: the whole service at even intervals, every kind at least once."""
    directories = max(1, round(0.15 * kills))
    targets = [DIRECTORY] * directories + [WORKER] * (kills - directories - services)
    chance.shuffle(targets)
    for number in range(services):
        targets.insert(kills * (number + 1) // (services + 1), SERVICE)
    return targets


def kill_service_processes(
    data: Path, seed: object, *, kills: int, services: int, detectors: int = 4, pause_s: float = 0.3
) -> Tally:
    """Kill this many processes, among them the whole service this many times. Raises Lost."""
    chance, tally = random.Random(f"{seed}"), Tally()
    deaths: list[tuple[float, Subject]] = []
    with ExitStack() as ends:
        running = Running(data, ends)
        load, catalogue = Load(running.token, running.front, seed), Catalogue(running)
        load.begin(detectors, CLIENTS, PAUSE_S)
        try:
            for target in planned(chance, kills, services):
                time.sleep(pause_s * (0.3 + chance.random()))
                if target == SERVICE:
                    _kill_the_service(running, load, tally)
                elif target == DIRECTORY:
                    _kill_one(running.directories)
                else:
                    subject = chance.choice(load.subjects)
                    _kill_one(lambda subject=subject: running.owners(subject))
                    deaths.append((time.monotonic(), subject))
                tally.kills[target] += 1
                catalogue.work()
                if target != WORKER:
                    tally.catalogue_checked += catalogue.check()
            load.until_all_answer(time.monotonic(), RESTART_WITHIN_S)
        finally:
            load.end()
        tally.catalogue_checked += catalogue.check()
    came = judged(load, {subject.id: data / "detectors" / subject.id for subject in load.subjects}, {})
    tally.checked, tally.judgement = came.requests - came.unanswered, came.lines()
    if came.violations or any(outcome.startswith("unexpected") for outcome in came.outcomes):
        raise Lost("\n".join([*came.lines(), *came.violations]))
    for killed_s, subject in deaths:
        answered_s = (at_s for at_s, _ in subject.answered if at_s > killed_s + _ALREADY_ANSWERED_S)
        tally.away_s.append(next(answered_s, killed_s + RESTART_WITHIN_S) - killed_s)
    return tally


def _kill_one(find: Any) -> None:
    """Kill a process as soon as it exists."""
    found: set[int] = set()
    until(lambda: found.update(find()) or found, "there is none to kill", RESTART_WITHIN_S)
    with contextlib.suppress(ProcessLookupError):
        os.kill(min(found), signal.SIGKILL)


def _kill_the_service(running: Running, load: Load, tally: Tally) -> None:
    began_s = time.monotonic()
    running.service.send(signal.SIGKILL)
    running.service.process.wait()
    running.start()
    load.fronts = running.front
    tally.restarts_s.append(time.monotonic() - began_s)
