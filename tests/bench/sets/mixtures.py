"""Indexed rules with a memory: in each bucket a mixture of temporal members, judged by hand as well."""

import random
from dataclasses import dataclass, field, replace
from typing import Any

from tests.bench.measuring.race import Condition, Contestant, Event, World, leaf

BUCKET_RULES = 50
KINDS = ("once", "since", "since within", "keyed once")
CODES = 40
USERS = 200
WINDOW_MS = 600_000
STEP_MS = 100
NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class MixedRule:
    """A candidate at `main` events of its bucket, which asks for what `setup` events there were."""

    number: int
    kind: str
    code: int


@dataclass(slots=True)
class Bucket:
    """The rules of one type of event, and what a hand-written judge remembers for them."""

    name: str
    rules: list[MixedRule] = field(default_factory=list)
    set_ms: dict[int, float] = field(default_factory=dict)
    """The latest setup event, by code."""
    cleared_ms: dict[int, float] = field(default_factory=dict)
    """The latest clearing event, by code."""
    user_set_ms: dict[tuple[str, int], float] = field(default_factory=dict)

    def condition(self, rule: MixedRule) -> dict[str, Any]:
        """The rule as JSON, which loads faster than text."""
        setup, cleared = self._step("setup", rule.code), self._step("clear", rule.code)
        since = {"left": {"not": cleared}, "right": setup}
        once = {"once_within": {"inner": setup, "window_secs": WINDOW_MS // 1_000}}
        past: dict[str, Any]
        match rule.kind:
            case "once":
                past = once
            case "since":
                past = {"since": since}
            case "since within":
                past = {"since_within": {**since, "window_secs": WINDOW_MS // 1_000}}
            case _:
                past = {"keyed": {"inner": once, "key": "user"}}
        return {"all": [leaf("type", "eq", f"{self.name} main"), past]}

    def _step(self, step: str, code: int) -> dict[str, Any]:
        return {"all": [leaf("type", "eq", f"{self.name} {step}"), leaf("code", "eq", code)]}

    def observe(self, fields: dict[str, Any], time_ms: float) -> list[int]:
        """Judge an event of this bucket by hand."""
        fired: list[int] = []
        code = fields["code"]
        match fields["step"]:
            case "setup":
                self.set_ms[code] = self.user_set_ms[fields["user"], code] = time_ms
                self.cleared_ms.pop(code, None)
            case "clear":
                self.cleared_ms[code] = time_ms
            case _:
                oldest_ms = time_ms - WINDOW_MS
                for rule in self.rules:
                    set_ms = (
                        self.user_set_ms.get((fields["user"], rule.code), NEVER)
                        if rule.kind == "keyed once"
                        else self.set_ms.get(rule.code, NEVER)
                    )
                    if set_ms == NEVER or (rule.kind != "since" and set_ms < oldest_ms):
                        continue
                    if rule.kind in ("once", "keyed once") or rule.code not in self.cleared_ms:
                        fired.append(rule.number)
        return fired


def world(rules: int, events: int) -> World:
    """Give a world whose events are mostly such that select rules; one in ten is one that rules ask for."""
    drawn = random.Random(rules)
    buckets = [Bucket(f"t{number}") for number in range(max(1, rules // BUCKET_RULES))]
    order = [bucket for bucket in buckets for _ in range(BUCKET_RULES)]
    drawn.shuffle(order)
    conditions: list[Condition] = []
    for number, bucket in enumerate(order):
        rule = MixedRule(number, drawn.choice(KINDS), drawn.randrange(CODES))
        bucket.rules.append(rule)
        conditions.append(bucket.condition(rule))
    for bucket in buckets:
        # Side by side in memory, as they are not in the order in which they came.
        bucket.rules = [replace(rule) for rule in bucket.rules]
    happened: list[Event] = []
    bucket_of = {bucket.name: bucket for bucket in buckets}
    for number in range(events):
        bucket = drawn.choice(buckets)
        step = drawn.choices(("main", "setup", "clear"), (90, 5, 5))[0]
        fields = {
            "type": f"{bucket.name} {step}",
            "bucket": bucket.name,
            "step": step,
            "code": drawn.randrange(CODES),
            "user": f"user{drawn.randrange(USERS)}",
        }
        happened.append((fields, float(number * STEP_MS), None))

    def run(stretch: list[Event]) -> list[Any]:
        return [bucket_of[fields["bucket"]].observe(fields, time_ms) for fields, time_ms, _ in stretch]

    return World(conditions, happened, Contestant("floor", run))
