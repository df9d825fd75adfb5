"""Records the firings of rules that notify, at each event at which one fires, before it is committed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from engine.evaluation.firings.feed import Feed
from engine.evaluation.firings.firing import Firing, Why
from engine.evaluation.kernel.rule_set import RuleSet
from engine.evaluation.rule_book.changes.versions import UNKNOWN, Versions
from engine.evaluation.rules import Fired, Rule
from engine.evaluation.stamps import EVENT, stamp_of, time_of
from engine.evaluation.times import milliseconds

FIRING_BYTES_MAX: Final = 16 * 1024
"""A larger firing has neither what its rule found nor witnesses."""


class Told(NamedTuple):
    """What the feed tells of a rule that fires at an event."""

    condition: str
    """The text of its condition, cut where it is long."""
    keys: Mapping[str, Any]
    found: Mapping[str, Any]
    witnesses_us: Mapping[str, int]
    """The times of the events that made what looks back true, by its texts."""


Tell = Callable[[RuleSet, Sequence[Rule], Mapping[str, Any], Mapping[str, Any], int], list[Told]]
"""Gives what to tell of rules that fire at an event: its fields and vars, and its stamp."""


class Recorder:
    """Appends the firings of a detector's rules to its feed."""

    tell: ClassVar[Tell]
    """Explains what fires; see `explanation.firings.explain_feeds`."""

    def __init__(self, feed: Feed, rule_set: RuleSet, versions: Versions, firings_max: int) -> None:
        self.feed = feed
        self._rule_set, self._versions, self._firings_max = rule_set, versions, firings_max

    def notes(self, rule: Rule) -> bool:
        """Return whether `note` is to be called for events at which a rule fires."""
        return rule.notify and not rule.shadow and self._firings_max > 0

    def note(
        self, fired: Fired, fields: Mapping[str, Any], sent: Mapping[str, Any] | None, base: int, tick: int
    ) -> Fired:
        """Take the rules that fire at an event, and return those that remain.

        The event is decided and not committed. `base` is the stamp of its time, and `tick` its number.
        """
        noted = [rule for rule in fired if self.notes(rule)]
        if noted:
            said = type(self).tell(self._rule_set, noted, fields, sent or {}, base + tick)
            for rule, one in zip(noted, said, strict=True):
                self._append(rule, one, time_of(base))
        return fired

    def by_time(self, rule: Rule, keys: Mapping[str, Any], time_us: int) -> None:
        """Take a rule that time alone makes true for the values of its keys, between two events."""
        if self.notes(rule):
            rule_set = self._rule_set
            fields = {name: value for name, value in keys.items() if not name.startswith("$")}
            sent = {name[1:]: value for name, value in keys.items() if name.startswith("$")}
            if rule_set.patterns.bounded:
                rule_set.patterns.begin(fields, sent)
            try:
                [told] = type(self).tell(rule_set, [rule], fields, sent, stamp_of(time_us, EVENT))
            finally:
                rule_set.lookups.forget()
            self._append(rule, told, time_us, timed=True)

    def _append(self, rule: Rule, told: Told, time_us: int, *, timed: bool = False) -> None:
        why = Why(
            version=self._versions.present.get(rule.priority, UNKNOWN).number,
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
            timed=timed,
            why=why,
        )
        encoded = firing.as_json()
        if len(encoded) > FIRING_BYTES_MAX:
            encoded = firing.in_short().as_json()
        self.feed.append(encoded)
