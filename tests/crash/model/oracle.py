"""The test oracle: what a detector must answer, by the executable specification, whatever happens to it.

What was acknowledged has happened. Of what was not, the oracle learns once whether it did: all or nothing.
"""

import copy
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from engine.evaluation.wire.events import Answer, Done, Refused
from engine.language.condition import Condition
from engine.language.json.writer import condition_to_document
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from tests.crash.model.history import Lost
from tests.reference import ReferenceDetector
from tests.worlds.scripts import STEPS_US, Choose, World, timestamp_ms

EVENTS_MAX = 45
"""The specification evaluates every question over the whole history, so the history must be short."""

RULES_MAX = 4
STEPS_LATER_US = tuple(step for step in STEPS_US if step > 1)
TOO_LATE_US = -300_000_001
_FED = "fed"
EARLIER_US = (-1, -1_000, -300_000_000, 0, TOO_LATE_US, TOO_LATE_US)


@dataclass(frozen=True)
class Sent:
    """One event of a request."""

    fields: dict[str, Any]
    time_us: int

    @property
    def timestamp_ms(self) -> float:
        return timestamp_ms(self.time_us)

    @property
    def document(self) -> dict[str, Any]:
        return {"fields": self.fields, "timestamp_ms": self.timestamp_ms}


@dataclass(frozen=True)
class Evaluation:
    """One event, or several in one body; with an idempotency key if it has one."""

    events: tuple[Sent, ...]
    vars: dict[str, Any] | None
    batch: bool
    key: str = ""

    @property
    def document(self) -> dict[str, Any]:
        context = {} if self.vars is None else {"context": {"vars": self.vars}}
        if self.batch:
            return {"events": [event.document for event in self.events], **context}
        return {"event": self.events[0].document, **context}

    @property
    def operation(self) -> Operation:
        body = json.dumps(self.document).encode()
        return (ops.evaluate_batch if self.batch else ops.evaluate)(body, self.key)


@dataclass(frozen=True)
class AddRule:
    """A new rule, whose id is in the answer."""

    name: str
    condition: Condition
    notify: bool

    @property
    def operation(self) -> Operation:
        return ops.add_rule(self.name, as_sent(self.condition), notify=self.notify)


@dataclass(frozen=True)
class ChangeRule:
    """Changes to the rule with this id."""

    rule_id: str
    changes: dict[str, Any]

    @property
    def operation(self) -> Operation:
        changes = dict(self.changes)
        if "condition" in changes:
            changes["condition"] = as_sent(changes["condition"])
        return ops.change_rule(self.rule_id, **changes)


@dataclass(frozen=True)
class RemoveRule:
    """The rule with this id is deleted."""

    rule_id: str

    @property
    def operation(self) -> Operation:
        return ops.remove_rule(self.rule_id)


@dataclass(frozen=True)
class ListRules:
    """All rules are asked for."""

    @property
    def operation(self) -> Operation:
        return ops.rules()


def as_sent(condition: Condition) -> str:
    """Return a condition as JSON, in which its numbers keep their spelling."""
    return json.dumps(condition_to_document(condition))


Asked: TypeAlias = Evaluation | AddRule | ChangeRule | RemoveRule | ListRules


def copied(reference: ReferenceDetector) -> ReferenceDetector:
    """Return a copy of a reference."""
    other = copy.copy(reference)
    other.events, other.rules = list(reference.events), dict(reference.rules)
    return other


def expected(reference: ReferenceDetector, asked: Asked, new_id: str) -> Any:
    """Let the reference execute the request, and return the answer in the form of `told`."""
    match asked:
        case Evaluation():
            each = []
            for event in asked.events:
                clock_us = max((past.time_us for past in reference.events), default=event.time_us)
                actions = reference.evaluate(event.fields, event.timestamp_ms, asked.vars)
                # A tuple, because copies of the reference share it.
                fed = tuple([(rule_id, name) for _, rule_id, name, _, notify in actions or () if notify])
                vars(reference)[_FED] = fed_of(reference) + fed
                each.append("1402" if actions is None else (tuple(actions), max(0, clock_us - event.time_us)))
            return tuple(each)
        case AddRule(name, condition, notify):
            reference.add_rule(new_id, name, condition, notify=notify)
            return new_id
        case ChangeRule(rule_id, changes):
            if rule_id not in reference.rules:
                return "1201"
            reference.change_rule(rule_id, **changes)
            return document_of(rule_id, reference)
        case RemoveRule(rule_id):
            if rule_id not in reference.rules:
                return "1201"
            del reference.rules[rule_id]
            return rule_id
        case ListRules():
            return listing_of(reference)


def fed_of(reference: ReferenceDetector) -> tuple[tuple[str, str], ...]:
    """Return all that the feed contained: the ids, and the names that rules had when they fired."""
    return vars(reference).get(_FED, ())


def document_of(rule_id: str, reference: ReferenceDetector) -> dict[str, Any]:
    rule = reference.rules[rule_id]
    return {
        "id": rule_id,
        "condition": condition_to_document(rule.condition),
        "enabled": rule.enabled,
        "name": rule.name,
        "notify": rule.notify,
        "priority": rule.priority,
    }


def listing_of(reference: ReferenceDetector) -> list[dict[str, Any]]:
    return [document_of(rule_id, reference) for rule_id in reference.rules]


def as_text(part: Any) -> str:
    """Return a text that differs where Python finds values equal: `1`, `1.0` and `true`."""
    return json.dumps(part, sort_keys=True)


def told(asked: Asked, answer: Answer) -> Any:
    """Return an answer in the form of `expected`."""
    if isinstance(answer, Refused):
        (code,) = {str(entry.code) for entry in answer.entries}
        return (code,) if isinstance(asked, Evaluation) else code
    return told_in(asked, json.loads(answer.result), json.loads(answer.messages))


def told_in(asked: Asked, result: Any, messages: list[Any]) -> Any:
    """Return a result in the form of `expected`."""
    match asked:
        case Evaluation(batch=True):
            return tuple(map(_told_of_event, result["results"]))
        case Evaluation():
            return (_told_of_event({**result, "messages": messages}),)
        case ListRules():
            return [_without_detector(rule) for rule in result["rules"]]
        case ChangeRule():
            return _without_detector(result)
        case _:
            return result["id"]


def _told_of_event(entry: dict[str, Any]) -> Any:
    errors = entry.get("errors", [])
    if errors:
        return str(errors[0]["code"])
    actions = tuple(
        (one["type"], one["ruleId"], one["name"], one["priority"], one["notify"]) for one in entry["actions"]
    )
    return actions, late_us(entry.get("messages", []))


def late_us(messages: list[dict[str, Any]]) -> int:
    """Return by how much an event was late; 0 if no message says so."""
    for message in messages:
        if message["code"] == 2001:
            return round(Fraction(message["message"].split(" ms")[0].split()[-1]) * 1_000)
    return 0


def _without_detector(rule: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in rule.items() if name != "detectorId"}


class Oracle:
    """The expected state of one detector, and requests to send to it next."""

    def __init__(self, choose: Choose, start_us: int) -> None:
        self.choose = choose
        self.world = World(choose)
        self.reference = ReferenceDetector()
        self.time_us = start_us
        """The latest time of any event, acknowledged or not."""
        self.keyed: dict[str, tuple[Evaluation, Answer]] = {}
        """The answers to evaluations with a key."""
        self.checked = 0
        self._numbers = itertools.count()

    # -- what to ask -----------------------------------------------------------------------------------------

    def batch(self, most: int = 4) -> list[Asked]:
        """Draw a batch of requests. It may be repeated as a whole only if all of them have keys.

        No rule is touched twice, so that from outside it can be seen whether it was.
        """
        count = self.choose(range(1, most + 1))
        if self.choose((False, False, True)):
            return [self.evaluation(keyed=True) for _ in range(count)]
        free = list(self.reference.rules)
        room = RULES_MAX - len(free)
        asked: list[Asked] = []
        for _ in range(count):
            asked.append(self._something(free, room))
            room -= isinstance(asked[-1], AddRule)
        return asked

    def evaluation(self, *, keyed: bool) -> Evaluation:
        """Draw one event or several; the last is later than all before."""
        choose = self.choose
        batch = choose((False, True))
        events = [self._earlier_or_later() for _ in range(choose(range(4)))] if batch else []
        self.time_us += choose(STEPS_LATER_US)
        events.append(Sent(self.world.fields(), self.time_us))
        key = f"key-{next(self._numbers)}" if keyed else ""
        return Evaluation(tuple(events), self.world.vars(), batch, key)

    def probe(self) -> Evaluation:
        """Return an event just after the last acknowledged one, and before any in doubt."""
        return Evaluation((Sent(self.world.fields(), self.clock_us + 1),), None, batch=False)

    @property
    def clock_us(self) -> int:
        return max((event.time_us for event in self.reference.events), default=self.time_us)

    @property
    def full(self) -> bool:
        return len(self.reference.events) >= EVENTS_MAX

    def _earlier_or_later(self) -> Sent:
        if self.choose((True, False, False)):
            return Sent(self.world.fields(), self.time_us + self.choose(EARLIER_US))
        self.time_us += self.choose(STEPS_LATER_US)
        return Sent(self.world.fields(), self.time_us)

    def _something(self, free: list[str], room: int) -> Asked:
        """Draw any request that changes only free rules, which are then no longer free."""
        choose = self.choose
        kind = choose("eeeeeercchhxl")
        if kind == "r" and room > 0:
            return self.add_rule()
        if kind == "l":
            return ListRules()
        if kind in "chx" and free:
            rule_id = free.pop(choose(range(len(free))))
            if kind == "c":
                edited = self.world.edit(self.reference.rules[rule_id].condition)
                return ChangeRule(rule_id, {"condition": edited})
            if kind == "h":
                change = choose((("enabled", False), ("enabled", True), ("name", "z"), ("notify", True)))
                return ChangeRule(rule_id, dict([change]))
            if len(self.reference.rules) > 1:
                return RemoveRule(rule_id)
        return self.evaluation(keyed=False)

    def add_rule(self) -> AddRule:
        return AddRule(f"rule {next(self._numbers)}", self.world.condition(3), self.choose((False, True)))

    # -- what came of it -------------------------------------------------------------------------------------

    def acknowledged(self, asked: Sequence[Asked], answers: Sequence[Answer]) -> None:
        """Record what was answered, and check it. Raises Lost."""
        assert len(asked) == len(answers)
        for one, answer in zip(asked, answers, strict=True):
            self.check(one, told(one, answer))
            if isinstance(one, Evaluation) and one.key and isinstance(answer, Done):
                self.keyed[one.key] = (one, answer)

    def check(self, asked: Asked, given: Any) -> None:
        """Let the reference execute the request, and compare. Raises Lost."""
        new_id = given if isinstance(asked, AddRule) else ""
        wanted = expected(self.reference, asked, new_id)
        self.checked += len(wanted) if isinstance(asked, Evaluation) else 1
        if as_text(given) != as_text(wanted):
            raise Lost(f"{asked}\nwas answered with\n{given}\nand not with\n{wanted}")

    def repeated(self, key: str, answer: Answer) -> None:
        """Check the answer to an evaluation that had been answered before. Raises Lost."""
        self.checked += 1
        if answer != self.keyed[key][1]:
            raise Lost(f"the repeat of {self.keyed[key][0]}\nwas answered with\n{answer}\nand not as before")

    def would_be(self, in_doubt: Sequence[Asked], listed: list[dict[str, Any]]) -> ReferenceDetector:
        """Return the reference as if the batch in doubt had happened; ids come from a listing."""
        other = copied(self.reference)
        new_ids = iter([rule["id"] for rule in listed if rule["id"] not in other.rules])
        for one in in_doubt:
            # One that was removed again right away is in no listing; of those there is none in one batch.
            expected(other, one, next(new_ids, "missing") if isinstance(one, AddRule) else "")
        return other

    def settle(self, in_doubt: Sequence[Asked], listed: list[dict[str, Any]], clock_us: int | None) -> bool:
        """Find out whether what is in doubt happened, from the rules and the clock, and take note of it.

        Raises Lost where it is neither all there nor all not.
        """
        happened = self.would_be(in_doubt, listed)
        # If both look the same from outside, they are the same: the batch changes nothing.
        for candidate, outcome in ((self.reference, False), (happened, True)):
            if (as_text(listed), clock_us) == (as_text(listing_of(candidate)), _clock_us(candidate)):
                self.reference = candidate
                self.checked += 1
                return outcome
        raise Lost(
            f"the clock is at {clock_us} with the rules\n{listed}\nwhich is neither before\n"
            f"{_clock_us(self.reference)} {listing_of(self.reference)}\nnor after {list(in_doubt)}\n"
            f"{_clock_us(happened)} {listing_of(happened)}"
        )

    def position(self) -> tuple[int | None, int]:
        """Return the time of the last event, and the number of events."""
        return _clock_us(self.reference), len(self.reference.events)


def _clock_us(reference: ReferenceDetector) -> int | None:
    return max((event.time_us for event in reference.events), default=None)
