"""A storm over the running service: its processes are killed under load, and what it answered is kept."""

import contextlib
import os
import random
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

from tests.crash.oracle import (
    AddRule,
    Asked,
    ChangeRule,
    Evaluation,
    ListRules,
    Lost,
    Oracle,
    RemoveRule,
    as_sent,
    told_in,
)
from tests.crash.storm import HAPPENED, NOT_HAPPENED, REPEATED, START_US
from tests.service_process import Served, served

DEADLINE_S = 10
ANSWER_WITHIN_S = DEADLINE_S + 2.0
RESTART_WITHIN_S = 60.0

HOST, DIRECTORY, SERVICE = "a host of detectors", "the directory", "the whole service"
_TITLES = {HOST: b"ray::HostActor", DIRECTORY: b"ray::DirectoryActor"}
_ALREADY_ANSWERED_S = 0.01
"""What arrives so soon after a kill may have been on its way before."""


@dataclass
class Toll:
    """What a storm over the service came to."""

    kills: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """Requests that had no answer, by code, or `cut off`."""
    checked: int = 0
    detectors: int = 0
    away_s: list[float] = field(default_factory=list)
    """How long each detector was, from the death of its host to its next answer."""
    restarts_s: list[float] = field(default_factory=list)
    slowest_s: float = 0.0
    tokens_checked: int = 0
    catalogue_checked: int = 0

    def lines(self) -> list[str]:
        """Say it, a number to a line."""
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
    """There was no answer, and it is not known whether there would have been one."""


class NotDone(Exception):
    """The service said that nothing was done, and to try again."""


class Station:
    """The service, as long as it lives, and the next one in its place."""

    def __init__(self, data: Path, toll: Toll) -> None:
        self.data = data
        self.toll = toll
        self.token = "rd_" + secrets.token_urlsafe(32)
        self.url = ""
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.restarted_at_s: list[float] = []
        self._ends: list[contextlib.ExitStack] = []
        self.service: Served | None = None

    def start(self) -> None:
        """Start the service, again where the one before it is not yet quite dead."""
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
        """Give the processes of a kind below the service."""
        assert self.service is not None
        below, found = [self.service.process.pid], []
        children = children_of_all()
        while below:
            for pid in children.get(below.pop(), []):
                below.append(pid)
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(_TITLES[what]):
                        found.append(pid)
        return found

    def hosted_by(self, pid: int) -> str | None:
        """Give the detector whose journal a process has open."""
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    target = entry.readlink()
                    if target.name.startswith("journal-") and target.parent.parent.name == "detectors":
                        return target.parent.name
        return None

    def kill_the_service(self) -> None:
        """Kill the service's own process, and start another one on its folder."""
        assert self.service is not None
        self.service.process.send_signal(signal.SIGKILL)
        begun_s = time.monotonic()
        self.restarted_at_s.append(begun_s)
        self.service.process.wait()
        self.toll.kills[SERVICE] += 1
        self.start()
        self.toll.restarts_s.append(time.monotonic() - begun_s)

    def close(self) -> None:
        for stack in reversed(self._ends):
            stack.close()


class Client:
    """Someone who calls the service, and tries again."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self._client = httpx.Client(timeout=ANSWER_WITHIN_S, trust_env=False)

    def request(
        self, method: str, path: str, document: object = None, *, key: str = "", token: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Give status and envelope. Raises CutOff and NotDone, after a moment."""
        toll = self.station.toll
        headers = {"Authorization": f"Bearer {token or self.station.token}"}
        if key:
            headers["Idempotency-Key"] = key
        begun_s = time.monotonic()
        try:
            response = self._client.request(method, self.station.url + path, json=document, headers=headers)
        except httpx.TimeoutException as error:
            raise AssertionError(f"{method} {path} had no answer within {ANSWER_WITHIN_S} s") from error
        except httpx.TransportError as error:
            with self.station.lock:
                toll.refused["a connection that was cut off"] += 1
            time.sleep(0.05)
            raise CutOff from error
        with self.station.lock:
            toll.slowest_s = max(toll.slowest_s, time.monotonic() - begun_s)
        envelope = response.json()
        codes = {entry["code"] for entry in envelope["errors"]}
        if codes & {1501, 1502, 1503}:
            with self.station.lock:
                toll.refused[str(*codes)] += 1
            time.sleep(0.02)
            raise CutOff(envelope) if 1502 in codes else NotDone(envelope)
        return response.status_code, envelope

    def until_answered(self, method: str, path: str, document: object = None, **more: str) -> Any:
        """Ask for what may be repeated until there is an answer: its status and envelope."""
        give_up_s = time.monotonic() + RESTART_WITHIN_S
        while time.monotonic() < give_up_s:
            with contextlib.suppress(CutOff, NotDone):
                return self.request(method, path, document, **more)
        raise AssertionError(f"{method} {path} had only refusals for {RESTART_WITHIN_S} s")

    def close(self) -> None:
        self._client.close()


class Load(threading.Thread):
    """One who has detectors, one after another, and asks each as fast as it answers."""

    def __init__(self, station: Station, seed: str) -> None:
        super().__init__(name=seed)
        self.station = station
        self.chance = random.Random(seed)
        self.client = Client(station)
        self.failed: BaseException | None = None
        self.detector_id = ""
        self.answers: list[tuple[float, str]] = []
        """When there was an answer, and from which detector."""

    def run(self) -> None:
        try:
            while not self.station.over.is_set():
                self._one_detector()
        except BaseException as error:  # noqa: BLE001 -- whoever joins raises it
            self.failed = error
        finally:
            self.client.close()

    def _one_detector(self) -> None:
        status, envelope = self.client.until_answered("POST", "/api/detectors", {"name": self.name})
        assert status == 200, envelope
        self.detector_id = envelope["result"]["id"]
        self.path = f"/api/detectors/{self.detector_id}"
        self.oracle = oracle = Oracle(self.chance.choice, START_US)
        # Until there is an event nothing can be asked after.
        while not oracle.reference.events:
            self._ask(oracle.evaluation(keyed=True))
        while not (oracle.full or self.station.over.is_set()):
            for asked in oracle.batch():
                self._ask(asked)
            if oracle.keyed and self.chance.random() < 0.2:
                self._repeat()
        self._look_back(())
        with self.station.lock:
            self.station.toll.checked += oracle.checked
            self.station.toll.detectors += 1
        if self.chance.random() < 0.5:
            self._strike_out()

    def _ask(self, asked: Asked) -> None:
        """Ask for something once, and find out what came of it where there is no answer."""
        try:
            status, envelope = self._send(asked)
        except NotDone:
            # Says that nothing was; the rules, the clock and all later answers would show if something had.
            return
        except CutOff:
            if isinstance(asked, ListRules):
                return
            if isinstance(asked, Evaluation) and asked.key:
                self._count(REPEATED)
                while True:
                    with contextlib.suppress(CutOff, NotDone):
                        self._acknowledged(asked, *self._send(asked))
                        break
                return
            self._look_back((asked,))
            return
        self._acknowledged(asked, status, envelope)

    def _look_back(self, asked: tuple[Asked, ...]) -> None:
        """Learn from the rules and the clock whether it happened, by what may be repeated."""
        oracle = self.oracle
        status, envelope = self.client.until_answered("GET", f"{self.path}/rules")
        assert status == 200, envelope
        listed = told_in(ListRules(), envelope["result"], [])
        probe = oracle.probe()
        key = f"probe-{secrets.token_hex(4)}"
        status, envelope = self.client.until_answered(
            "POST", f"{self.path}/evaluate", probe.document, key=key
        )
        given = _told(probe, status, envelope)
        ((_, late_us),) = given
        clock_us = probe.events[0].time_us + late_us if late_us else oracle.clock_us
        happened = oracle.settle(asked, listed, clock_us)
        if asked:
            self._count(HAPPENED if happened else NOT_HAPPENED)
        oracle.check(probe, given)
        oracle.time_us = max(oracle.time_us, oracle.clock_us)

    def _repeat(self) -> None:
        evaluation, before = self.oracle.keyed[self.chance.choice(list(self.oracle.keyed))]
        with contextlib.suppress(CutOff, NotDone):
            _, envelope = self._send(evaluation)
            self.oracle.checked += 1
            if envelope != before:
                raise Lost(f"a repeat was answered with\n{envelope}\nand not with\n{before}")

    def _strike_out(self) -> None:
        status, _ = self.client.until_answered("DELETE", self.path)
        assert status in (200, 404)
        with self.station.lock:
            self.station.toll.catalogue_checked += 1
        gone = self.path
        for _ in range(3):
            status, envelope = self.client.until_answered("GET", f"{gone}/rules")
            assert status == 404, envelope

    def _send(self, asked: Asked) -> tuple[int, dict[str, Any]]:
        client, rules = self.client, f"{self.path}/rules"
        match asked:
            case Evaluation(batch=batch, key=key):
                end = "/evaluate/batch" if batch else "/evaluate"
                return client.request("POST", self.path + end, asked.document, key=key)
            case AddRule(name, condition, notify):
                document = {"name": name, "condition": as_sent(condition), "notify": notify}
                return client.request("POST", rules, document)
            case ChangeRule(rule_id, changes):
                changed = {
                    name: as_sent(value) if name == "condition" else value for name, value in changes.items()
                }
                return client.request("PATCH", f"{rules}/{rule_id}", changed)
            case RemoveRule(rule_id):
                return client.request("DELETE", f"{rules}/{rule_id}")
            case ListRules():
                return client.request("GET", rules)

    def _acknowledged(self, asked: Asked, status: int, envelope: dict[str, Any]) -> None:
        self.oracle.check(asked, _told(asked, status, envelope))
        if isinstance(asked, Evaluation) and asked.key and status == 200:
            self.oracle.keyed[asked.key] = (asked, envelope)  # type: ignore[assignment]
        self.answers.append((time.monotonic(), self.detector_id))

    def _count(self, outcome: str) -> None:
        with self.station.lock:
            self.station.toll.outcomes[outcome] += 1

    def away_s(self, killed_s: float, detector_id: str) -> float | None:
        """Say how long after a kill the detector answered again, if it did."""
        return next(
            (
                answered_s - killed_s
                for answered_s, of in list(self.answers)
                if of == detector_id and answered_s > killed_s + _ALREADY_ANSWERED_S
            ),
            None,
        )


def _told(asked: Asked, status: int, envelope: dict[str, Any]) -> Any:
    if status != 200:
        (code,) = {str(entry["code"]) for entry in envelope["errors"]}
        assert code in ("1402", "1201"), envelope
        return (code,) if isinstance(asked, Evaluation) else code
    return told_in(asked, envelope["result"], envelope["messages"])


class Clerk:
    """One who mints and revokes tokens, makes and deletes detectors, and knows what was acknowledged."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self.client = Client(station)
        self.good: list[str] = []
        self.revoked: list[str] = []
        self.there: list[str] = []
        self.deleted: list[str] = []

    def work(self) -> None:
        """Do one of each, once; what has no answer counts for nothing."""
        with contextlib.suppress(CutOff, NotDone):
            minted = self.client.request("POST", "/api/token")[1]["result"]
            self.good.append(minted["token"])
            second = self.client.request("POST", "/api/token")[1]["result"]
            status, _ = self.client.request("DELETE", f"/api/token/{second['id']}")
            assert status == 200
            self.revoked.append(second["token"])
        with contextlib.suppress(CutOff, NotDone):
            for into in (self.there, self.deleted):
                created = self.client.request("POST", "/api/detectors", {"name": "clerk"})[1]["result"]["id"]
                if into is self.deleted:
                    status, _ = self.client.request("DELETE", f"/api/detectors/{created}")
                    assert status == 200
                into.append(created)

    def check(self, latest: int | None = 10) -> None:
        """See that what was acknowledged is so, of tokens the latest, or all with None. Raises Lost."""
        toll = self.station.toll
        listed = self.client.until_answered("GET", "/api/detectors")[1]["result"]
        known = {entry["id"] for entry in listed}
        if missing := set(self.there) - known:
            raise Lost(f"detectors that were acknowledged are not there: {missing}")
        if back := set(self.deleted) & known:
            raise Lost(f"detectors whose deletion was acknowledged are there: {back}")
        for tokens, wanted in ((self.good, 200), (self.revoked, 401)):
            for token in tokens[-latest:] if latest else tokens:
                status, envelope = self.client.until_answered("GET", "/api/detectors", token=token)
                if status != wanted:
                    raise Lost(f"a token is answered with {status} and not {wanted}: {envelope}")
                toll.tokens_checked += 1
        toll.catalogue_checked += len(self.there) + len(self.deleted)


def children_of_all() -> dict[int, list[int]]:
    """Give the children of every process that has any."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(path.read_bytes().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    return children


@contextmanager
def station(data: Path, toll: Toll) -> Iterator[Station]:
    """Give a service that can be killed, and end the last one."""
    made = Station(data, toll)
    made.start()
    try:
        yield made
    finally:
        made.over.set()
        made.close()


def planned(chance: random.Random, kills: int, services: int) -> list[str]:
    """Give whom each kill of a storm meets: the service evenly spread, and every kind at least once."""
    directories = max(1, round(0.15 * kills))
    victims = [DIRECTORY] * directories + [HOST] * (kills - directories - services)
    chance.shuffle(victims)
    for number in range(services):
        victims.insert(kills * (number + 1) // (services + 1), SERVICE)
    return victims


def service_storm(
    data: Path, seed: object, *, kills: int, services: int, detectors: int = 4, pause_s: float = 0.3
) -> Toll:
    """Kill that many processes, of which so many are the whole service. Raises Lost."""
    chance = random.Random(f"{seed}")
    toll = Toll()
    with station(data, toll) as running:
        loads = [Load(running, f"{seed} {number}") for number in range(detectors)]
        clerk = Clerk(running)
        clerk.work()
        for load in loads:
            load.start()
        victims = planned(chance, kills, services)
        deaths: list[tuple[float, str, Load]] = []
        try:
            while victims:
                time.sleep(pause_s * (0.3 + chance.random()))
                for load in loads:
                    if load.failed is not None:
                        raise load.failed
                victim, before = victims[0], toll.kills.total()
                if victim == SERVICE:
                    running.kill_the_service()
                    clerk.check()
                elif victim == DIRECTORY:
                    _kill_the_directory(running)
                    clerk.work()
                    clerk.check()
                else:
                    _kill_a_host(running, chance, loads, deaths)
                    clerk.work()
                # Where the one whose turn it is was not there to be killed, its turn comes again.
                if toll.kills.total() > before:
                    victims.pop(0)
            time.sleep(3)
        finally:
            running.over.set()
            for load in loads:
                load.join(60)
        clerk.check(latest=None)
        clerk.client.close()
        for load in loads:
            if load.failed is not None:
                raise load.failed
        for killed_s, detector_id, load in deaths:
            away_s = load.away_s(killed_s, detector_id)
            restarted = any(killed_s - 1 < at < killed_s + (away_s or 0) for at in running.restarted_at_s)
            if away_s is not None and not restarted:
                toll.away_s.append(away_s)
    return toll


def _kill_a_host(
    running: Station, chance: random.Random, loads: list[Load], deaths: list[tuple[float, str, Load]]
) -> None:
    """Kill a process that has one of the detectors that are asked."""
    hosts = [(pid, running.hosted_by(pid)) for pid in running.pids(HOST)]
    asked = {load.detector_id: load for load in loads}
    known = [(pid, detector_id) for pid, detector_id in hosts if detector_id in asked]
    if not known:
        return
    pid, detector_id = chance.choice(known)
    assert detector_id is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        deaths.append((time.monotonic(), detector_id, asked[detector_id]))
        running.toll.kills[HOST] += 1


def _kill_the_directory(running: Station) -> None:
    for pid in running.pids(DIRECTORY):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            running.toll.kills[DIRECTORY] += 1
