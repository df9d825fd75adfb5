"""Decides which firing rules act, and records those with `notify`, before an event is committed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from engine.evaluation.firings.at_most_once import AtMostOnce
from engine.evaluation.firings.feed import Feed, Firing, Why
from engine.evaluation.kernel.rule_set import RuleSet
from engine.evaluation.rules import Fired, Rule
from engine.evaluation.stamps import stamp_of, time_of
from engine.evaluation.timed.table import event_of
from engine.evaluation.times import milliseconds

FIRING_BYTES_MAX: Final = 16 * 1024
"""Larger firings have neither values found nor witnesses."""


class Told(NamedTuple):
    """The details in the feed of a rule that fires at an event."""

    condition: str
    """The text of its condition, cut if long."""
    keys: Mapping[str, Any]
    found: Mapping[str, Any]
    witnesses_us: Mapping[str, int]
    """The times of the events that made its members true, by their texts."""


Tell = Callable[[RuleSet, Sequence[Rule], Mapping[str, Any], Mapping[str, Any], int], list[Told]]
"""Returns the details of rules that fire at an event, given its fields and vars, and its stamp."""


class Recorder:
    """Appends the firings of a detector's rules to its feed."""

    tell: ClassVar[Tell]
    """Explains firings; see `explanation.firings.explain_feeds`."""

    def __init__(
        self,
        feed: Feed,
        rule_set: RuleSet,
        version_of: Callable[[int], int],
        firings_max: int,
        at_most_once: AtMostOnce,
    ) -> None:
        self.feed, self._at_most_once = feed, at_most_once
        self._rule_set, self._version_of, self._firings_max = rule_set, version_of, firings_max

    def _is_fed(self, rule: Rule) -> bool:
        return rule.is_fed and self._firings_max > 0

    def note(
        self, fired: Fired, fields: Mapping[str, Any], sent: Mapping[str, Any] | None, base: int, tick: int
    ) -> Fired:
        """Record the rules that fire at an event, and return those that act.

        The event is decided but not committed. `base` is the stamp of its time, and `tick` its number.
        """
        acting = self._at_most_once.note(fired, fields, sent or {}, base + tick)
        fed = [rule for rule in acting if self._is_fed(rule)]
        if fed:
            said = type(self).tell(self._rule_set, fed, fields, sent or {}, base + tick)
            for rule, told in zip(fed, said, strict=True):
                self._append(rule, told, time_of(base))
        return acting

    def by_time(self, rule: Rule, keys: Mapping[str, Any], time_us: int, tick: int = 0) -> Rule | None:
        """Record a rule that time alone makes true for the values of its keys; return it if it acts.

        `tick` is the number of the previous event.
        """
        if not rule.is_noted(feeds=self._firings_max > 0):
            return rule
        fields, sent = event_of(dict(keys))
        stamp = stamp_of(time_us, tick)
        acting = self._at_most_once.acting((rule,), fields, sent, stamp)
        for acts in acting:
            if self._is_fed(acts):
                self._append(acts, self._told_by_time(acts, fields, sent, stamp), time_us, timed=True)
            return acts
        return None

    def _told_by_time(
        self, rule: Rule, fields: Mapping[str, Any], sent: Mapping[str, Any], stamp: int
    ) -> Told:
        rule_set = self._rule_set
        if rule_set.patterns.bounded:
            rule_set.patterns.begin(fields, sent)
        [told] = type(self).tell(rule_set, [rule], fields, sent, stamp)
        return told

    def _append(self, rule: Rule, told: Told, time_us: int, *, timed: bool = False) -> None:
        why = Why(
            version=self._version_of(rule.priority),
            condition=told.condition,
            witnesses_ms={text: milliseconds(one_us) for text, one_us in told.witnesses_us.items()},
        )
        firing = Firing(
            seq=self.feed.last + 1,
            time_ms=milliseconds(time_us),
            rule_id=rule.id,
            name=rule.name,
            priority=rule.priority,
            keys=told.keys,
            found=told.found,
            labels=rule.labels,
            suppressed=rule.suppressed,
            timed=timed,
            why=why,
        )
        encoded = firing.as_json()
        if len(encoded) > FIRING_BYTES_MAX:
            encoded = firing.in_short().as_json()
        self.feed.append(encoded)
