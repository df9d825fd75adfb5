"""Decides which of the rules that fire act, and records those that notify, before an event is committed."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.evaluation.facts.look_up import Name, split_name, value_of
from engine.evaluation.facts.shown import shown
from engine.evaluation.facts.values import key_of
from engine.evaluation.firings.at_most_once import AtMostOnce
from engine.evaluation.firings.feed import Feed
from engine.evaluation.firings.firing import Firing, Why
from engine.evaluation.requirements import keys_of
from engine.evaluation.rule_book.changes.versions import UNKNOWN, Versions
from engine.evaluation.rules import Fired, Rule
from engine.evaluation.stamps import stamp_of, time_of
from engine.evaluation.times import milliseconds
from engine.language.condition import Condition


class _Plan(NamedTuple):
    """What is worked out once for a rule."""

    condition: Condition
    keys: tuple[tuple[str, Name], ...]


class Recorder:
    """Appends the actions of a detector's rules to its feed."""

    def __init__(self, feed: Feed, versions: Versions, firings_max: int, at_most_once: AtMostOnce) -> None:
        self.feed, self._at_most_once = feed, at_most_once
        self._versions, self._firings_max = versions, firings_max
        self._plans: dict[int, _Plan] = {}

    def notes(self, rule: Rule) -> bool:
        """Return whether `note` is to be called for events at which a rule fires."""
        return self._is_fed(rule) or self._at_most_once.concerns(rule)

    def _is_fed(self, rule: Rule) -> bool:
        return rule.notify and not rule.shadow and self._firings_max > 0

    def note(
        self, fired: Fired, fields: Mapping[str, Any], sent: Mapping[str, Any] | None, base: int, tick: int
    ) -> Fired:
        """Take the rules that fire at an event, and return those that remain.

        The event is decided and not committed. `base` is the stamp of its time, and `tick` its number.
        """
        acting = self._at_most_once.note(fired, fields, sent or {}, base + tick)
        for rule in acting:
            if self._is_fed(rule):
                self._append(rule, self._keys(rule, fields, sent or {}), time_of(base))
        return acting

    def by_time(self, rule: Rule, keys: Mapping[str, Any], time_us: int, tick: int = 0) -> Rule | None:
        """Take a rule that time alone makes true for the values of its keys; return it if it acts.

        `tick` is the number of the event before.
        """
        fields = {name: value for name, value in keys.items() if not name.startswith("$")}
        sent = {name[1:]: value for name, value in keys.items() if name.startswith("$")}
        for acts in self._at_most_once.acting((rule,), fields, sent, stamp_of(time_us, tick)):
            if self._is_fed(acts):
                cut = {name: shown(value).value for name, value in keys.items()}
                self._append(acts, cut, time_us, timed=True)
            return acts
        return None

    def _append(self, rule: Rule, keys: Mapping[str, Any], time_us: int, *, timed: bool = False) -> None:
        firing = Firing(
            seq=self.feed.last + 1,
            time_ms=milliseconds(time_us),
            rule_id=rule.id,
            name=rule.name,
            priority=rule.priority,
            keys=keys,
            labels=rule.labels,
            suppressed=rule.suppressed,
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
        if plan is None or plan.condition is not rule.condition:
            names = keys_of(rule.condition)
            plan = _Plan(rule.condition, tuple([(name, split_name(name)) for name in names]))
            self._plans[rule.priority] = plan
        return plan
