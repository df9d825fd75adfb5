"""Reads the portable vectors and plays them to a detector. README.md beside this file has their format."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from engine import Detector, parse
from engine.evaluation.timed.timing import FiredByTime
from engine.language.diagnostics import Refusal
from tests.reference import Event, ReferenceDetector, Rule
from tests.reference_timed import firings

Vector = dict[str, Any]


TOLD = ("expect", "messages", "refused", "held_back", "by_time")
"""The members of a step with expectations."""


class Player(Protocol):
    """A detector under test, which identifies rules by ids of its own."""

    server_ms: float | None

    def add(self, name: str, condition: str | dict[str, Any], **members: Any) -> str: ...
    def edit(self, rule_id: str, changes: dict[str, Any]) -> None: ...
    def remove(self, rule_id: str) -> None: ...
    def relate(self, kind: str, name: str, given: dict[str, Any]) -> None:
        """Store, change or delete a relation."""

    def submit(self, event: dict[str, Any], sent: dict[str, Any] | None) -> dict[str, Any]:
        """Give `{"expect": names, "messages": codes}`, or `{"refused": code}`.

        And `{"held_back": numbers, "by_time": firings}`, those before the event.
        """

    def tick(self, time_ms: float) -> dict[str, Any]:
        """Return `{"by_time": firings}`, or `{"refused": code}`."""


class EnginePlayer:
    """The engine."""

    def __init__(self) -> None:
        self.server_ms: float | None = None
        self.detector = Detector(now_us=self.now_us)

    def now_us(self) -> int:
        """Return the server's time. If a vector has none, no event is ahead of it."""
        return 10**30 if self.server_ms is None else round(self.server_ms * 1_000)

    def add(self, name: str, condition: str | dict[str, Any], **members: Any) -> str:
        return self.detector.add_rule(name=name, condition=condition, **members)

    def edit(self, rule_id: str, changes: dict[str, Any]) -> None:
        self.detector.change_rule(rule_id, **changes)

    def remove(self, rule_id: str) -> None:
        self.detector.remove_rule(rule_id)

    def relate(self, kind: str, name: str, given: dict[str, Any]) -> None:
        match kind:
            case "put":
                self.detector.put_relation(name, given["tuples"], 0)
            case "amend":
                add, remove = given.get("add", []), given.get("remove", [])
                self.detector.change_relation(name, add, remove, time_ms=0)
            case _:
                self.detector.delete_relation(name)

    def submit(self, event: dict[str, Any], sent: dict[str, Any] | None) -> dict[str, Any]:
        self.detector.fired_by_time = fired = []
        try:
            outcome = self.detector.submit(event["fields"], event["timestamp_ms"], sent)
        except Refusal as refusal:
            return {"refused": refusal.code}
        finally:
            self.detector.fired_by_time = None
        # The vectors count time from 1970, which the messages call probably not milliseconds.
        codes = [message.code for message in outcome.messages if message.code != 2007]
        return {
            "expect": [action["name"] for action in outcome.actions],
            "messages": codes,
            "held_back": [action.get("suppressed", 0) for action in outcome.actions],
            "by_time": self.by_time(fired),
        }

    def tick(self, time_ms: float) -> dict[str, Any]:
        try:
            return {"by_time": self.by_time(self.detector.tick(round(time_ms * 1_000)))}
        except Refusal as refusal:
            return {"refused": refusal.code}

    def by_time(self, fired: list[FiredByTime]) -> list[Any]:
        """Return the name of the rule, the time and the keys of each firing."""
        return [[one.rule.name, one.time_us / 1_000, one.keys] for one in fired]


class ReloadedPlayer(EnginePlayer):
    """The engine, which is saved and loaded at each step."""

    def submit(self, event: dict[str, Any], sent: dict[str, Any] | None) -> dict[str, Any]:
        self.reload()
        return super().submit(event, sent)

    def tick(self, time_ms: float) -> dict[str, Any]:
        self.reload()
        return super().tick(time_ms)

    def reload(self) -> None:
        """Continue with the saved state."""
        version = Detector.STATE_VERSION
        self.detector = Detector.load(self.detector.dump(), version, now_us=self.now_us)


class ReferencePlayer:
    """The executable specification. It has no messages."""

    def __init__(self) -> None:
        self.server_ms: float | None = None
        self.detector = ReferenceDetector(self.now_us)

    def now_us(self) -> int:
        return 10**30 if self.server_ms is None else round(self.server_ms * 1_000)

    def add(
        self,
        name: str,
        condition: str | dict[str, Any],
        *,
        notify: bool = False,
        timed: bool = False,
        **every: Any,
    ) -> str:
        rule_id = str(self.detector.highest)
        self.detector.add_rule(rule_id, name, parse(condition), notify=notify, timed=timed)
        self.detector.change_rule(rule_id, **every)
        return rule_id

    def edit(self, rule_id: str, changes: dict[str, Any]) -> None:
        parsed = {"condition": parse(changes["condition"])} if "condition" in changes else {}
        self.detector.change_rule(rule_id, **{**changes, **parsed})

    def remove(self, rule_id: str) -> None:
        del self.detector.rules[rule_id]

    def relate(self, kind: str, name: str, given: dict[str, Any]) -> None:
        match kind:
            case "put":
                self.detector.put_relation(name, given["tuples"])
            case "amend":
                self.detector.change_relation(name, given.get("add", []), given.get("remove", []))
            case _:
                del self.detector.relations[name]

    def submit(self, event: dict[str, Any], sent: dict[str, Any] | None) -> dict[str, Any]:
        before, seen, rules = self.detector.clock_us, [*self.detector.events], dict(self.detector.rules)
        fired = self.detector.evaluate(event["fields"], event["timestamp_ms"], sent)
        if fired is None:
            return {"refused": 1402}
        names = [name for _, _, name, *_ in fired]
        held_back = [sum(held) for *_, _, _, _, held in ((*action[:5], action[5:]) for action in fired)]
        by_time = self.by_time(rules, seen, before, self.detector.events[-1].time_us)
        return {"expect": names, "held_back": held_back, "by_time": by_time}

    def tick(self, time_ms: float) -> dict[str, Any]:
        one, time_us = self.detector, round(time_ms * 1_000)
        if time_us - self.now_us() > 60_000_000:
            return {"refused": 1402}
        before = one.clock_us
        one.ticked_us = max([time_us, *before])
        return {"by_time": self.by_time(one.rules, one.events, before, time_us)}

    def by_time(
        self, rules: dict[str, Rule], events: list[Event], before: list[int], until_us: int
    ) -> list[Any]:
        """Return the firings by time between the previous clock and a time."""
        if not before:
            return []
        fired = firings(rules, events, self.detector.relations, before[0], until_us)
        return [[rules[one.rule_id].name, one.time_us / 1_000, dict(one.keys)] for one in fired]


def read(folder: Path = Path(__file__).parent) -> Iterator[tuple[str, Vector]]:
    """Return each vector with a name that consists of its file and title."""
    for path in sorted(folder.glob("*.json")):
        for vector in json.loads(path.read_text(encoding="utf-8")):
            yield f"{path.stem}: {vector['title']}", vector


def play(vector: Vector, player: Player) -> str | None:
    """Describe the first step that differs from the vector; None if there is none."""
    ids: list[tuple[str, str]] = []

    def add(rule: dict[str, Any]) -> None:
        ids.append((rule["name"], player.add(**rule)))

    def place(name: str) -> int:
        return next(i for i, (other, _) in enumerate(ids) if other == name)

    for rule in vector["rules"]:
        add(rule)
    for number, step in enumerate(vector["steps"]):
        match step.get("change"):
            case None:
                player.server_ms = step.get("server_ms")
                is_tick = "tick" in step
                given = (
                    player.tick(step["tick"]) if is_tick else player.submit(step["event"], step.get("vars"))
                )
                wanted = {key: step[key] for key in TOLD if key in step}
                # The reference has no messages: only members that a player returns are compared.
                differs = [key for key in wanted if wanted[key] != given.get(key, wanted[key])]
                if differs or ("refused" in given) != ("refused" in wanted):
                    return f"step {number}, {json.dumps(step)}: {given}"
            case {"put": name} | {"amend": name} | {"delete": name} as given:
                player.relate(next(iter(given)), name, given)
            case {"add": rule}:
                add(rule)
            case {"remove": name}:
                player.remove(ids.pop(place(name))[1])
            case {"edit": name, **changes}:
                where = place(name)
                player.edit(ids[where][1], changes)
                ids[where] = (changes.get("name", name), ids[where][1])
            case other:
                raise ValueError(f"no such change: {other}")
    return None
