"""Records the firings of rules that notify, at each event at which one fires, before it is committed."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.evaluation.facts.look_up import Name, split_name, value_of
from engine.evaluation.facts.shown import shown
from engine.evaluation.facts.values import key_of
from engine.evaluation.firings.feed import Feed
from engine.evaluation.firings.firing import Firing, Why
from engine.evaluation.requirements import keys_of
from engine.evaluation.rule_book.changes.versions import UNKNOWN, Versions
from engine.evaluation.rules import Fired, Rule
from engine.evaluation.stamps import time_of
from engine.evaluation.times import milliseconds


class _Plan(NamedTuple):
    """What is worked out once for a rule."""

    rule: Rule
    keys: tuple[tuple[str, Name], ...]


class Recorder:
    """Appends the firings of a detector's rules to its feed."""

    def __init__(self, feed: Feed, versions: Versions, firings_max: int) -> None:
        self.feed = feed
        self._versions, self._firings_max = versions, firings_max
        self._plans: dict[int, _Plan] = {}

    def notes(self, rule: Rule) -> bool:
        """Return whether `note` is to be called for events at which a rule fires."""
        return rule.notify and not rule.shadow and self._firings_max > 0

    def note(
        self, fired: Fired, fields: Mapping[str, Any], sent: Mapping[str, Any] | None, base: int, tick: int
    ) -> Fired:
        """Take the rules that fire at an event, and return those that remain.

        The event is decided and not committed. `base` is the stamp of its time, and `tick` its number.
        """
        del tick
        time_us = time_of(base)
        for rule in fired:
            if self.notes(rule):
                self._append(rule, self._keys(rule, fields, sent or {}), time_us)
        return fired

    def by_time(self, rule: Rule, keys: Mapping[str, Any], time_us: int) -> None:
        """Take a rule that time alone makes true for the values of its keys."""
        if self.notes(rule):
            cut = {name: shown(value).value for name, value in keys.items()}
            self._append(rule, cut, time_us, timed=True)

    def _append(self, rule: Rule, keys: Mapping[str, Any], time_us: int, *, timed: bool = False) -> None:
        firing = Firing(
            seq=self.feed.last + 1,
            time_ms=milliseconds(time_us),
            rule_id=rule.id,
            name=rule.name,
            priority=rule.priority,
            keys=keys,
            labels=rule.labels,
            timed=timed,
            why=Why(version=self._versions.present.get(rule.priority, UNKNOWN).number),
        )
        self.feed.append(firing.as_json())

    def _keys(self, rule: Rule, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name, split in self._plan_of(rule).keys:
            value = value_of(split, fields, sent)
            if key_of(value) is not None:
                found[name] = shown(value).value
        return found

    def _plan_of(self, rule: Rule) -> _Plan:
        plan = self._plans.get(rule.priority)
        if plan is None or plan.rule is not rule:
            names = keys_of(rule.condition)
            plan = _Plan(rule, tuple([(name, split_name(name)) for name in names]))
            self._plans[rule.priority] = plan
        return plan
