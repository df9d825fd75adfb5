"""Shadow rules, which cause no actions, and the comparisons of drafts with their rules."""

import logging
from collections import deque
from collections.abc import Container, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from engine.evaluation.facts.look_up import split_name, value_of
from engine.evaluation.facts.shown import shown
from engine.evaluation.facts.values import Event
from engine.evaluation.requirements import Births, lookback_us
from engine.evaluation.rules import Fired, LiveRule, Rule
from engine.evaluation.times import FOREVER
from engine.language.condition import Condition, walk
from engine.language.diagnostics import Entry, Refusal

_log = logging.getLogger(__name__)

EXAMPLES_MAX: Final = 10
"""The maximum number of examples of a kind; later ones replace earlier ones."""

EXAMPLES_EACH: Final = 100
"""This many events of a kind become examples, and then one of every so many. Copying an event takes longer
than evaluating a few rules for it."""

EXPLAINED_MAX: Final = 5
"""The maximum number of explained examples of a kind."""

DRAFTS_MAX: Final = 100
"""The maximum number of drafts of a detector. Each may hold 30 examples of about a thousand characters, and
10 explained ones."""

BOTH, ONLY_RULE, ONLY_DRAFT = KINDS = ("both", "only_rule", "only_draft")
"""Which of a rule and its draft fired."""

SHADOW: Final = "shadow"
"""The name of the firings of shadow rules in the tally, besides the kinds."""

_TOGETHER_MAX: Final = 32
"""The maximum number of rules in a cached combination. More rules rarely fire together again."""
_SORTED_OUT_MAX: Final = 1_000
_NOTHING: Final[Mapping[str, Any]] = {}
_PRIORITY: Final = attrgetter("priority")


class Example(NamedTuple):
    """An event at which a rule or its draft fired."""

    number: int
    """The number of the event in the detector, from 1."""
    timestamp_ms: float
    """The event's own timestamp. A late event was evaluated at the time of the clock instead."""
    key: Mapping[str, Any]
    """The values of the keys in both conditions."""
    fields: Any
    is_cut: bool
    """Whether long values were cut."""


class Explained(NamedTuple):
    """An event at which only one of a rule and its draft fired, and why."""

    example: Example
    rule: bytes
    """The tree of the rule's condition before the event was recorded, as JSON."""
    draft: bytes


class Watcher(Protocol):
    """Receives events at which only one of a rule and its draft fired."""

    def differed(self, kind: str, example: Example, event: Event) -> None:
        """Take an event that was just evaluated."""


class Comparison:
    """How often a rule and its draft fired together, and each alone, since both had histories."""

    def __init__(self, live: LiveRule, draft: LiveRule, events_seen: int, clock_us: int | None) -> None:
        self.rule_id, self.draft_id = live.rule.id, draft.rule.id
        self.since_event, self.since_us = events_seen, clock_us
        self.young_until_us: int | None = None
        """Until when the two may differ because the younger one has seen less: FOREVER if it looks back
        without a window, None if both have seen everything they look back at."""
        if live.birth != draft.birth and clock_us is not None:
            younger = max(live, draft, key=lambda one: one.birth)
            back_us = lookback_us(younger.rule.condition)
            self.young_until_us = FOREVER if back_us is None else clock_us + back_us if back_us else None
        self.counts = dict.fromkeys(KINDS, 0)
        self.examples = {kind: deque[Example](maxlen=EXAMPLES_MAX) for kind in KINDS}
        """The latest examples of each kind."""
        self.explained = {kind: deque[Explained](maxlen=EXPLAINED_MAX) for kind in KINDS if kind != BOTH}
        """The latest explained examples of each kind."""
        self.watcher: Watcher | None = None
        """Receives every event at which only one of the two fired."""
        self.sampler: Watcher | None = None
        """Receives such an event if its number is `sampled_at`."""
        self.sampled_at = 0
        self._sampled = dict.fromkeys(KINDS, 0)
        keys = {
            key if isinstance(key, str) else key.fact: None
            for one in (live, draft)
            for _, around in walk(one.rule.condition)
            for key in around
        }
        self._keys = [(name, split_name(name)) for name in keys]

    def kind_of(self, fired: Container[str]) -> str:
        """Return which of the two, at least one, is among firing rules given by id."""
        return ONLY_DRAFT if self.rule_id not in fired else BOTH if self.draft_id in fired else ONLY_RULE

    def note(self, kind: str, number: int, event: Event) -> None:
        """Count an event at which at least one of the two fired."""
        self.counts[kind] = count = self.counts[kind] + 1
        watchers = () if kind == BOTH else self._choose_watchers(kind, number)
        if not watchers and not _becomes_example(count):
            return
        example = self._example(number, event)
        self.examples[kind].append(example)
        for watcher in watchers:
            try:
                watcher.differed(kind, example, event)
            except Exception:  # noqa: BLE001 -- as in observers
                _log.exception("a watcher of a comparison failed at a difference")

    def _choose_watchers(self, kind: str, number: int) -> list[Watcher]:
        """Choose the watchers that receive an event at which only one of the two fired."""
        watchers = [] if self.watcher is None else [self.watcher]
        if self.sampler is not None and number == self.sampled_at:
            self._sampled[kind] = sampled = self._sampled[kind] + 1
            if _becomes_example(sampled):
                watchers.append(self.sampler)
        return watchers

    def _example(self, number: int, event: Event) -> Example:
        fields, timestamp_ms, sent = event
        key = {name: value_of(split, fields, sent or _NOTHING) for name, split in self._keys}
        cut = shown(fields)
        return Example(number, timestamp_ms, shown(key).value, cut.value, cut.is_cut)

    def dump(self) -> list[Any]:
        """Return the arguments of `restore`, without examples."""
        return [self.since_event, self.since_us, self.young_until_us, *self.counts.values()]

    def restore(
        self, since_event: int, since_us: int | None, young_until_us: int | None, *counts: int
    ) -> None:
        """Continue from the numbers of `dump`."""
        self.since_event, self.since_us, self.young_until_us = since_event, since_us, young_until_us
        self.counts.update(zip(KINDS, counts, strict=True))

    def exchange(self) -> None:
        """Exchange the rule and the draft. Nobody watches the new pair yet."""
        self.watcher = self.sampler = None
        self.explained = {
            kind: deque([one._replace(rule=one.draft, draft=one.rule) for one in kept], EXPLAINED_MAX)
            for kind, kept in self.explained.items()
        }
        for of_kinds in (self.counts, self._sampled, self.examples, self.explained):
            _exchange(of_kinds)


class _SortedOut(NamedTuple):
    """For rules that fired together: which of them act, and which comparisons count the event."""

    acting: Fired
    compared: tuple[tuple[Comparison, str], ...]
    """The comparisons of these rules, and which of each pair fired."""


class Shadows:
    """The shadow rules of a detector. Rules are identified by id."""

    def __init__(self, rules: Mapping[str, LiveRule]) -> None:
        self._rules = rules
        self.tally = dict.fromkeys((SHADOW, *KINDS), 0)
        """How often shadow rules fired, and the number of events of each kind in all comparisons, since the
        detector was created or restored."""
        self.ids: set[str] = set()
        """The ids of the shadow rules."""
        self._drafts: dict[str, str] = {}
        """The id of each rule's draft."""
        self.comparisons: dict[str, Comparison] = {}
        """The comparison of each rule with its draft, by the rule's id, while both are enabled."""
        self._sides: dict[str, Comparison] = {}
        """The same comparisons by the ids of both rules."""
        self._sorted_out: dict[tuple[int, ...], _SortedOut] = {}
        """The cached results for rules that fired together, by their priorities. A priority is never reused,
        whereas the identity of a removed rule may recur."""

    def dump(self) -> dict[str, Any]:
        """Return sections described in `persistence.saved`. Priorities identify rules; a fork keeps them."""

        def priority(rule_id: str) -> int:
            return self._rules[rule_id].rule.priority

        ids = sorted(self.ids, key=priority)
        rules_of = [(each, self._rules[each].rule.draft_of) for each in ids]
        compared = sorted(self.comparisons, key=priority)
        return {
            "shadows": {priority(each): None if of is None else priority(of) for each, of in rules_of},
            "comparisons": [[priority(each), *self.comparisons[each].dump()] for each in compared],
        }

    def check_draft(self, rule_id: str, *, shadow: bool) -> None:
        """Raise Refusal 1001 or 1201 unless a new rule can be a draft of this one."""
        if not shadow:
            raise Refusal(Entry(1001, "draftOf: only a shadow rule can be a draft; send `shadow`, too"))
        if rule_id not in self._rules:
            raise Refusal(Entry(1201, f"there is no rule `{rule_id}` in this detector"))
        if self._rules[rule_id].rule.shadow:
            raise Refusal(Entry(1001, f"draftOf: the rule `{rule_id}` is a shadow rule itself"))

    def check_room(self, rule_id: str) -> None:
        """Raise Refusal 1400 unless there is room for a draft of this rule."""
        if rule_id in self._drafts:
            raise Refusal(Entry(1400, f"the rule `{rule_id}` has a draft already: `{self._drafts[rule_id]}`"))
        if len(self._drafts) >= DRAFTS_MAX:
            raise Refusal(Entry(1400, f"the detector has {DRAFTS_MAX} drafts; limit {DRAFTS_MAX}"))

    def draft_of(self, rule_id: str) -> LiveRule | None:
        """Return the draft of a rule."""
        draft_id = self._drafts.get(rule_id)
        return None if draft_id is None else self._rules[draft_id]

    def comparison(self, rule_id: str) -> Comparison:
        """Return the comparison of a rule with its draft. Raises Refusal 1201."""
        found = self.comparisons.get(rule_id)
        if found is not None:
            return found
        if rule_id in self._drafts:
            said = f"the rule `{rule_id}` or its draft `{self._drafts[rule_id]}` is disabled; enable both"
        else:
            said = f"the rule `{rule_id}` has no draft; add a shadow rule with `draftOf`"
        raise Refusal(Entry(1201, said))

    def put(self, before: LiveRule | None, after: LiveRule, events_seen: int, clock_us: int | None) -> None:
        """Record that a rule was added or changed. A new history restarts its comparison."""
        self._sorted_out.clear()
        rule = after.rule
        of = None if before is None else before.rule.draft_of
        # Rules changed together may exchange what they are drafts of.
        if of is not None and of != rule.draft_of and self._drafts.get(of) == rule.id:
            self._forget(of)
            del self._drafts[of]
        if rule.shadow:
            self.ids.add(rule.id)
        else:
            self.ids.discard(rule.id)
        if rule.draft_of is not None:
            self._drafts[rule.draft_of] = rule.id
        if before is None or _history(before) != _history(after) or (rule.draft_of and of != rule.draft_of):
            self._compare(rule.draft_of or rule.id, events_seen, clock_us)

    def exchange(self, comparison: Comparison) -> None:
        """Record that a rule and its draft have exchanged their conditions and histories."""
        self._sorted_out.clear()
        comparison.exchange()

    def remove(self, rule: Rule) -> None:
        """Remove a rule that has no draft."""
        self._sorted_out.clear()
        self.ids.discard(rule.id)
        if rule.draft_of is not None:
            self._forget(rule.draft_of)
            del self._drafts[rule.draft_of]

    def acting(self, fired: Fired, number: int, event: Event, held_back: Sequence[Rule] = ()) -> Fired:
        """Return those firing rules that cause actions, and count the event in comparisons.

        In comparisons, rules in `held_back` count as firing, because drafts are compared by their conditions.
        """
        tally = self.tally
        if not self._sides:
            acting = tuple([rule for rule in fired if not rule.shadow])
            tally[SHADOW] += len(fired) - len(acting)
            return acting
        true = tuple(sorted((*fired, *held_back), key=_PRIORITY)) if held_back else fired
        together = tuple(map(_PRIORITY, true))
        sorted_out = self._sorted_out.get(together) or self._sort_out(together, true)
        tally[SHADOW] += len(true) - len(sorted_out.acting)
        for comparison, kind in sorted_out.compared:
            tally[kind] += 1
            comparison.note(kind, number, event)
        if held_back or any(rule.suppressed for rule in fired):
            return tuple([rule for rule in fired if not rule.shadow])
        return sorted_out.acting

    def _sort_out(self, together: tuple[int, ...], fired: Fired) -> "_SortedOut":
        ids = {rule.id for rule in fired}
        comparisons = {self._sides[each] for each in ids & self._sides.keys()}
        found = _SortedOut(
            # Use the stored rules: `suppressed` of the fired ones belongs to this event only.
            tuple([self._rules[rule.id].rule for rule in fired if not rule.shadow]),
            tuple([(comparison, comparison.kind_of(ids)) for comparison in comparisons]),
        )
        if len(together) <= _TOGETHER_MAX:
            if len(self._sorted_out) >= _SORTED_OUT_MAX:
                self._sorted_out.clear()
            self._sorted_out[together] = found
        return found

    def _compare(self, rule_id: str, events_seen: int, clock_us: int | None) -> None:
        """Start the comparison of a rule with its draft, if both exist and are enabled."""
        self._forget(rule_id)
        live, draft = self._rules.get(rule_id), self.draft_of(rule_id)
        if live is None or draft is None or not (live.rule.enabled and draft.rule.enabled):
            return
        comparison = Comparison(live, draft, events_seen, clock_us)
        self.comparisons[rule_id] = comparison
        self._sides[rule_id] = self._sides[draft.rule.id] = comparison

    def _forget(self, rule_id: str) -> None:
        before = self.comparisons.pop(rule_id, None)
        if before is not None:
            before.watcher = None
            del self._sides[rule_id], self._sides[before.draft_id]


def _becomes_example(count: int) -> bool:
    """Return whether an event becomes an example, given the number of events of its kind so far."""
    return count <= EXAMPLES_EACH or not count % EXAMPLES_EACH


def _exchange(of_kinds: dict[str, Any]) -> None:
    of_kinds[ONLY_RULE], of_kinds[ONLY_DRAFT] = of_kinds[ONLY_DRAFT], of_kinds[ONLY_RULE]


def _history(live: LiveRule) -> tuple[bool, Births, Condition]:
    return live.rule.enabled, live.births, live.rule.condition
