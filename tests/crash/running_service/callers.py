"""Callers of the running service, who check every answer: of detectors, and of the catalogue."""

import contextlib
import random
import secrets
import threading
import time
from typing import Any

from tests.crash.actors.actor_kills import HAPPENED, NOT_HAPPENED, REPEATED, START_US
from tests.crash.model.oracle import (
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
from tests.crash.running_service.service import (
    CutOff,
    NotDone,
    RetryingClient,
    RunningService,
)

_ALREADY_ANSWERED_S = 0.01
"""An answer so soon after a kill may have been on its way before."""


class Caller(threading.Thread):
    """A thread that creates one detector after another, and calls each as fast as it answers."""

    def __init__(self, service: RunningService, seed: str) -> None:
        super().__init__(name=seed)
        self.service = service
        self.chance = random.Random(seed)
        self.client = RetryingClient(service)
        self.failed: BaseException | None = None
        self.detector_id = ""
        self.answers: list[tuple[float, str]] = []
        """The time and the detector of each answer."""

    def run(self) -> None:
        try:
            while not self.service.over.is_set():
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
        while not (oracle.full or self.service.over.is_set()):
            for asked in oracle.batch():
                self._ask(asked)
            if oracle.keyed and self.chance.random() < 0.2:
                self._repeat()
        self._look_back(())
        with self.service.lock:
            self.service.tally.checked += oracle.checked
            self.service.tally.detectors += 1
        if self.chance.random() < 0.5:
            self._strike_out()

    def _ask(self, asked: Asked) -> None:
        """Send one request; if there is no answer, find out whether it was done."""
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
        """Learn from the rules and the clock whether a request was done, by requests that may be repeated."""
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
        with self.service.lock:
            self.service.tally.catalogue_checked += 1
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
        with self.service.lock:
            self.service.tally.outcomes[outcome] += 1

    def away_s(self, killed_s: float, detector_id: str) -> float | None:
        """Return how long after a kill the detector answered again; None if it did not."""
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


class CatalogueCaller:
    """Mints and revokes tokens, creates and deletes detectors, and remembers what was acknowledged."""

    def __init__(self, service: RunningService) -> None:
        self.service = service
        self.client = RetryingClient(service)
        self.good: list[str] = []
        self.revoked: list[str] = []
        self.there: list[str] = []
        self.deleted: list[str] = []

    def work(self) -> None:
        """Do one of each, once. Requests without an answer do not count."""
        with contextlib.suppress(CutOff, NotDone):
            minted = self.client.request("POST", "/api/token")[1]["result"]
            self.good.append(minted["token"])
            second = self.client.request("POST", "/api/token")[1]["result"]
            status, _ = self.client.request("DELETE", f"/api/token/{second['id']}")
            assert status == 200
            self.revoked.append(second["token"])
        with contextlib.suppress(CutOff, NotDone):
            for into in (self.there, self.deleted):
                created = self.client.request("POST", "/api/detectors", {"name": "catalogue"})[1]["result"][
                    "id"
                ]
                if into is self.deleted:
                    status, _ = self.client.request("DELETE", f"/api/detectors/{created}")
                    assert status == 200
                into.append(created)

    def check(self, latest: int | None = 10) -> None:
        """Check what was acknowledged; of tokens the `latest`, or all if None. Raises Lost."""
        tally = self.service.tally
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
                tally.tokens_checked += 1
        tally.catalogue_checked += len(self.there) + len(self.deleted)
