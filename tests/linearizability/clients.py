"""Concurrent clients of a running service, which record what they asked, when, and the answers."""

import http.client
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine.language.json.writer import condition_to_document
from tests.crash.model.oracle import late_us
from tests.linearizability.history import (
    REFUSED,
    AddRule,
    Answer,
    Asked,
    At,
    Call,
    ChangeRule,
    Evaluate,
    Fired,
    Listed,
    ListRules,
    Position,
    RemoveRule,
    Unexpected,
)
from tests.linearizability.workload import Workload

ANSWER_WITHIN_S: Final = 12.0
NOT_EXECUTED: Final = frozenset({1401, 1501, 1503})
OUTCOME_UNKNOWN: Final = 1502
CANNOT: Final = frozenset({1201, 1402})
RETRIES_MAX: Final = 5


class NotExecuted(Exception):
    """Nothing was done, and the client knows this."""


class NoAnswer(Exception):
    """Nobody knows whether it was done."""


@dataclass
class Subject:
    """A detector under load, and its history."""

    id: str
    workload: Workload
    calls: list[Call] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    """The ids of rules by name."""
    answered: list[tuple[float, str]] = field(default_factory=list)
    """When it answered, in seconds, and through which front end; almost in order."""

    def away_s(self, since_s: float, beside: str = "") -> float:
        """Return the longest time without an answer that ended after a moment.

        Answers through the front end `beside` do not count; through the others, the time begins at that
        moment, for perhaps nobody asked them before.
        """
        pairs = itertools.pairwise(sorted(at_s for at_s, front in self.answered if front != beside))
        least_s = since_s if beside else 0.0
        return max((after - max(before, least_s) for before, after in pairs if after >= since_s), default=0.0)

    def answered_since(self, since_s: float, beside: str = "") -> bool:
        """Whether it has answered since a moment, except through the front end `beside`."""
        latest = next((at_s for at_s, front in reversed(self.answered) if front != beside), 0.0)
        return latest > since_s


class Load:
    """Clients, each of which sends one request after another, to any detector and through any front end."""

    def __init__(self, token: str, fronts: Mapping[str, tuple[str, int]], seed: object) -> None:
        self.token = token
        self.fronts = dict(fronts)
        """The addresses of front ends by name; may change while the load runs."""
        self.subjects = list[Subject]()
        self.outcomes = Counter[str]()
        self.failed = list[BaseException]()
        self._seed = seed
        self._stop = threading.Event()
        self._threads = list[threading.Thread]()

    def begin(self, detectors: int, clients: int, pause_s: float) -> None:
        """Create detectors with their rules, and start the clients."""
        setting_up = Client(self, "setup", 0.0)
        for number in range(detectors):
            made = setting_up.request("POST", "/api/detectors", {"name": f"detector {number}"})
            subject = Subject(made[1]["result"]["id"], Workload(random.Random(f"{self._seed} {number}")))
            self.subjects.append(subject)
            for rule in subject.workload.begun:
                setting_up.ask(subject, rule)
        setting_up.leave()
        for number in range(clients):
            self._threads.append(Client(self, f"c{number}", pause_s, number))
            self._threads[-1].start()

    def end(self) -> None:
        """Stop all clients, and raise the error of any of them."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self.failed:
            raise self.failed[0]

    @property
    def over(self) -> bool:
        return self._stop.is_set()

    def until_all_answer(self, since_s: float, within_s: float, beside: str = "") -> None:
        """Wait until every detector has answered since a moment.

        Answers through the front end `beside` do not count.
        """
        give_up_s = time.monotonic() + within_s
        while not all(subject.answered_since(since_s, beside) for subject in self.subjects):
            assert not self.failed, self.failed
            assert time.monotonic() < give_up_s, f"no answers within {within_s} s: {self.outcomes}"
            time.sleep(0.05)


class Client(threading.Thread):
    """One client. Those with numbers spread over the front ends whenever these change."""

    def __init__(self, load: Load, name: str, pause_s: float, number: int | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self.load = load
        self.pause_s = pause_s
        self.chance = random.Random(f"{load._seed} {name}")
        self._connection: http.client.HTTPConnection | None = None
        self._number = number
        self._fronts: Mapping[str, tuple[str, int]] = {}
        """The front ends among which it chose last."""
        self._front = ""

    def run(self) -> None:
        try:
            while not self.load.over:
                subject = self.chance.choice(self.load.subjects)
                self._ask_and_retry(subject, subject.workload.next())
                time.sleep(self.chance.uniform(0, 2 * self.pause_s))
        except BaseException as error:  # noqa: BLE001 -- whoever ends the load raises it
            self.load.failed.append(error)
        finally:
            self.leave()

    def _ask_and_retry(self, subject: Subject, asked: Asked) -> None:
        """Ask; repeat a request with a key if no answer came, and sometimes even if one did."""
        for _ in range(RETRIES_MAX):
            answered = self.ask(subject, asked)
            has_key = isinstance(asked, Evaluate) and asked.key
            if not has_key or self.load.over or (answered and self.chance.random() < 0.9):
                return

    def ask(self, subject: Subject, asked: Asked) -> bool:
        """Send one request, and record the result; return whether there was an answer."""
        method, path, document = request_of(subject, asked)
        key = asked.key if isinstance(asked, Evaluate) else ""
        called_ns = time.monotonic_ns()
        try:
            status, envelope = self.request(method, f"/api/detectors/{subject.id}{path}", document, key)
        except NotExecuted as error:
            self.load.outcomes[f"not executed: {error}"] += 1
            time.sleep(0.05)
            return False
        except NoAnswer as error:
            self.load.outcomes[f"perhaps executed: {error}"] += 1
            subject.calls.append(Call(self.name, asked, called_ns))
            return False
        returned_ns = time.monotonic_ns()
        answer = answer_of(subject, asked, envelope)
        subject.calls.append(Call(self.name, asked, called_ns, returned_ns, answer))
        self.load.outcomes[str(status)] += 1
        if isinstance(answer, Unexpected):
            self.load.outcomes[f"unexpected: {answer.said}"] += 1
        subject.answered.append((returned_ns / 1e9, self._front))
        return True

    def request(
        self, method: str, path: str, document: object = None, key: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Send a request; return status and envelope. Raises NotExecuted and NoAnswer."""
        connection = self._connect()
        headers = {"Authorization": f"Bearer {self.load.token}"} | ({"Idempotency-Key": key} if key else {})
        body = None if document is None else json.dumps(document)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            envelope = json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            self.leave()
            raise NoAnswer(type(error).__name__) from error
        codes = {entry["code"] for entry in envelope["errors"]}
        if codes & NOT_EXECUTED:
            # Another front end may know better.
            self.leave()
            raise NotExecuted(str(*codes))
        if OUTCOME_UNKNOWN in codes:
            raise NoAnswer(str(OUTCOME_UNKNOWN))
        return response.status, envelope

    def _connect(self) -> http.client.HTTPConnection:
        fronts = self.load.fronts
        number = None if fronts is self._fronts else self._number
        if number is not None or self._front not in fronts:
            self.leave()
        if self._connection is None:
            names = list(fronts)
            self._front = self.chance.choice(names) if number is None else names[number % len(names)]
            self._fronts = fronts
            host, port = fronts[self._front]
            connection = http.client.HTTPConnection(host, port, timeout=ANSWER_WITHIN_S)
            try:
                connection.timeout = 3.0
                connection.connect()
                assert connection.sock is not None
                connection.sock.settimeout(ANSWER_WITHIN_S)
            except OSError as error:
                raise NotExecuted("no connection") from error
            self._connection = connection
        return self._connection

    def leave(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def request_of(subject: Subject, asked: Asked) -> tuple[str, str, object]:
    """Return method, path behind the detector's, and body of a request."""
    match asked:
        case Evaluate(events, batch):
            sent = [{"fields": dict(event.fields), "timestamp_ms": event.timestamp_ms} for event in events]
            if batch:
                return "POST", "/evaluate/batch", {"events": sent}
            return "POST", "/evaluate", {"event": sent[0]}
        case AddRule(name, condition, notify):
            text = json.dumps(condition_to_document(condition))
            return "POST", "/rules", {"name": name, "condition": text, "notify": notify}
        case ChangeRule(name, changes):
            document = dict(changes)
            if "condition" in document:
                document["condition"] = json.dumps(condition_to_document(document["condition"]))
            return "PATCH", f"/rules/{subject.ids[name]}", document
        case RemoveRule(name):
            return "DELETE", f"/rules/{subject.ids[name]}", None
        case ListRules():
            return "GET", "/rules", None
        case Position():
            return "GET", "/state", None


def answer_of(subject: Subject, asked: Asked, envelope: Mapping[str, Any]) -> Answer | Unexpected:
    """Return the result in an envelope, and note the ids of new rules."""
    errors, result = envelope["errors"], envelope["result"]
    if errors:
        if {entry["code"] for entry in errors} & CANNOT:
            return (REFUSED,) if isinstance(asked, Evaluate) else REFUSED
        return Unexpected(f"{errors[0]['code']} {errors[0]['message']}")
    match asked:
        case Evaluate(batch=True):
            return tuple(_fired(one, one.get("messages", []), one.get("errors")) for one in result["results"])
        case Evaluate():
            return (_fired(result, envelope["messages"], None),)
        case AddRule(name):
            subject.ids[name] = result["id"]
            if name not in subject.workload.rules and name.startswith("changing"):
                subject.workload.rules.append(name)
            return "added"
        case ChangeRule():
            return (_listed(result),)
        case RemoveRule():
            return "removed"
        case ListRules():
            return tuple(map(_listed, result["rules"]))
        case Position():
            return At(result.get("clock_ms"), result["events"])


def _fired(result: Mapping[str, Any], messages: Sequence[Any], errors: Any) -> Fired | str:
    if errors:
        return REFUSED
    actions = ((one["type"], one["name"], one["priority"], one["notify"]) for one in result["actions"])
    return Fired(tuple(actions), late_us(list(messages)))


def _listed(rule: Mapping[str, Any]) -> Listed:
    return Listed(rule["name"], rule["notify"], rule["enabled"], rule["priority"])
