"""Changes of many rules as one change, which is validated, and accepted or refused, as a whole."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol

from engine.evaluation.requirements import Births, requirements_of
from engine.evaluation.rule_book.budgets import Budgets
from engine.evaluation.rule_book.shadows import DRAFTS_MAX
from engine.evaluation.rules import (
    Labels,
    LiveRule,
    Rule,
    check_description,
    check_labels,
    check_name,
    read_condition,
    read_every,
)
from engine.language.condition import Condition
from engine.language.diagnostics import Entry, Refusal, quoted
from engine.language.limits import Limits

DEFECTS_MAX: Final = 32
"""The maximum number of defects reported."""

_MORE: Final = "there are more defects than these"


class WantedRule(NamedTuple):
    """The desired state of a rule. Members that are not given have defaults."""

    name: str
    condition: str | Mapping[str, Any] | Condition
    notify: bool = False
    enabled: bool = True
    shadow: bool = False
    draft_of: str | None = None
    """The name of the rule that this is a draft of."""
    description: str = ""
    labels: Labels = MappingProxyType({})
    timed: bool = False
    every_secs: float | None = None
    every_by: Sequence[str] | None = None
    history: Literal["keep"] | None = None
    """Whether a different condition keeps histories."""


_READ: Final = frozenset({"condition", "draft_of", "labels", "history", "every_secs", "every_by"})
_ALIKE: Final = attrgetter(*sorted({*WantedRule._fields} - _READ))
"""Returns the members that Rule and WantedRule represent in the same way."""


class RulesChange(NamedTuple):
    """The effects of a change of many rules."""

    created: tuple[Rule, ...]
    """Rules with new ids, in order of priority."""
    changed: tuple[tuple[Rule, Rule], ...]
    """Each changed rule, before and after."""
    removed: tuple[Rule, ...]
    unchanged: tuple[Rule, ...]
    keeping: frozenset[str]
    """The ids of the rules that keep histories."""

    @property
    def put(self) -> list[tuple[Rule, Literal["keep"] | None]]:
        """The rules that are added or replaced, and whether they keep histories."""
        put = (*(after for _, after in self.changed), *self.created)
        return [(rule, self.history(rule)) for rule in put]

    def history(self, rule: Rule) -> Literal["keep"] | None:
        """Return whether a rule keeps histories."""
        return "keep" if rule.id in self.keeping else None


class Book(Protocol):
    """The rules of a detector, as far as a change of many rules needs them."""

    limits: Limits
    live: dict[str, LiveRule]
    priority_highest: int
    budgets: Budgets

    def births_of(self, rule: Rule, history: Literal["keep"] | None) -> Births:
        """Return the births of a rule's histories if it replaces the one with its id now."""

    def new_id(self) -> str:
        """Return an id for a new rule."""


def rules_change(
    book: Book, wanted: Sequence[WantedRule], *, prune: bool, between: Callable[[], None]
) -> RulesChange:
    """Return the change that makes the named rules as wanted; with `prune`, it removes all others.

    Raises Refusal with all defects of the first kind found, each with its place: 1001 for names and members,
    13xx for conditions, 1400 for exceeded limits. `between` is called from time to time.
    """
    named: dict[str, list[Rule]] = {}
    for live in book.live.values():
        named.setdefault(live.rule.name, []).append(live.rule)
    stored = [_stored(one, named.get(one.name, ())) for one in wanted]
    _refuse(_wrong_names(wanted, stored, named, prune=prune))
    conditions: dict[str, tuple[Condition, str | None]] = {}
    defects: list[Entry] = []
    for place, (one, same) in enumerate(zip(wanted, stored, strict=True)):
        if same is not None:
            continue
        try:
            conditions[one.name] = _read(one.condition, named.get(one.name, [None])[0], book.limits)
        except Refusal as refusal:
            defects += [
                entry._replace(message=f"rules[{place}].condition: {entry.message}")
                for entry in refusal.entries
            ]
            if len(defects) > DEFECTS_MAX:
                break
        between()
    _refuse(iter(defects))
    change = _made(book, wanted, stored, conditions, named)
    if prune:
        names = {one.name for one in wanted}
        others = [rule for name, rules in named.items() if name not in names for rule in rules]
        change = change._replace(removed=tuple(others))
    _refuse(_exceeded(book, change))
    return change


def _refuse(defects: Iterator[Entry]) -> None:
    """Raise Refusal if there are defects."""
    found = [entry for entry, _ in zip(defects, range(DEFECTS_MAX + 1), strict=False)]
    if len(found) > DEFECTS_MAX:
        found[DEFECTS_MAX] = Entry(found[0].code, _MORE)
    if found:
        raise Refusal(*found)


def _stored(wanted: WantedRule, named: Sequence[Rule]) -> Rule | None:
    """Return the only rule with a name if it is as wanted already, like most rules of a large change."""
    if len(named) != 1 or not isinstance(wanted.condition, str):
        return None
    [rule] = named
    is_same = (
        rule.draft_of is wanted.draft_of is None
        and _ALIKE(rule) == _ALIKE(wanted)
        and rule.every_secs == (wanted.every_secs or None)
        and rule.every_by == (None if wanted.every_by is None else tuple(wanted.every_by))
        and repr(dict(rule.labels)) == repr(dict(wanted.labels))
        and rule.is_written(wanted.condition)
    )
    return rule if is_same else None


def _wrong_names(
    wanted: Sequence[WantedRule],
    stored: Sequence[Rule | None],
    named: Mapping[str, list[Rule]],
    *,
    prune: bool,
) -> Iterator[Entry]:
    """Yield the defects of everything except conditions."""
    places: dict[str, int] = {}
    shadows: dict[str, bool] = {}
    if any(one.draft_of is not None for one in wanted):
        if not prune:
            shadows = {name: rules[0].shadow for name, rules in named.items() if len(rules) == 1}
        shadows |= {one.name: one.shadow for one in wanted}
    for place, (one, same) in enumerate(zip(wanted, stored, strict=True)):
        first = places.setdefault(one.name, place)
        if same is not None and first == place:
            continue
        at = f"rules[{place}]"
        checks: tuple[Callable[[], object], ...] = (
            partial(check_name, one.name),
            partial(check_description, one.description),
            partial(check_labels, one.labels),
            partial(read_every, one.every_secs, one.every_by),
        )
        for check in checks:
            try:
                check()
            except Refusal as refusal:
                yield from (entry._replace(message=f"{at}.{entry.message}") for entry in refusal.entries)
        if first != place:
            yield Entry(1001, f"{at}.name: rules[{first}] is named {quoted(one.name)}, too")
        elif len(rules := named.get(one.name, ())) > 1:
            yield Entry(1001, f"{at}.name: the detector has {len(rules)} rules named {quoted(one.name)}")
        of = one.draft_of
        if of is None:
            continue
        if not one.shadow:
            yield Entry(1001, f"{at}.draftOf: only a shadow rule can be a draft; send `shadow`, too")
        if of not in shadows:
            where = "the body" if prune else "the body or, alone, in the detector"
            yield Entry(1001, f"{at}.draftOf: no rule in {where} is named {quoted(of)}")
        elif shadows[of]:
            yield Entry(1001, f"{at}.draftOf: the rule {quoted(of)} is a shadow rule itself")


def _read(
    given: str | Mapping[str, Any] | Condition, before: Rule | None, limits: Limits
) -> tuple[Condition, str | None]:
    """Return a condition and its source. The present text of a rule is not parsed again."""
    if before is not None and isinstance(given, str) and before.is_written(given):
        return before.condition, before.source
    return read_condition(given, limits)


def _made(
    book: Book,
    wanted: Sequence[WantedRule],
    stored: Sequence[Rule | None],
    conditions: Mapping[str, tuple[Condition, str | None]],
    named: Mapping[str, list[Rule]],
) -> RulesChange:
    new = {one.name: book.new_id() for one in wanted if one.name not in named}

    def id_of(name: str) -> str:
        return new[name] if name in new else named[name][0].id

    created: list[Rule] = []
    changed: list[tuple[Rule, Rule]] = []
    unchanged: list[Rule] = []
    for one, same in zip(wanted, stored, strict=True):
        if same is not None:
            unchanged.append(same)
            continue
        condition, source = conditions[one.name]
        before = named.get(one.name, [None])[0]
        every_secs, every_by = read_every(one.every_secs, one.every_by)
        rule = Rule(
            id=id_of(one.name),
            name=one.name,
            condition=condition,
            enabled=one.enabled,
            notify=one.notify,
            priority=book.priority_highest + len(created) + 1 if before is None else before.priority,
            source=source,
            shadow=one.shadow,
            draft_of=None if one.draft_of is None else id_of(one.draft_of),
            description=one.description,
            labels=dict(one.labels),
            timed=one.timed,
            every_secs=every_secs,
            every_by=every_by,
        )
        if before is None:
            created.append(rule)
        elif not rule.is_same(before):
            changed.append((before, rule))
        else:
            unchanged.append(before)
    keeping = frozenset([id_of(one.name) for one in wanted if one.history is not None])
    return RulesChange(tuple(created), tuple(changed), (), tuple(unchanged), keeping)


def _exceeded(book: Book, change: RulesChange) -> Iterator[Entry]:
    """Yield the limits that the detector would exceed after the change."""
    count, most = len(book.live) + len(change.created) - len(change.removed), book.limits.rules_max
    if count > most and change.created:
        yield Entry(1400, f"the detector would have {count} rules; limit {most}")
    coming = [rule for rule, _ in change.put]
    going = (*(before for before, _ in change.changed), *change.removed)
    drafts = Counter(live.rule.draft_of for live in book.live.values() if live.rule.draft_of is not None)
    drafts.subtract(rule.draft_of for rule in going if rule.draft_of is not None)
    drafts.update(rule.draft_of for rule in coming if rule.draft_of is not None)
    if several := [rule_id for rule_id, number in drafts.items() if number > 1]:
        names = {rule.id: rule.name for rule in (*coming, *(live.rule for live in book.live.values()))}
        for rule_id in several:
            yield Entry(1400, f"the rule {quoted(names[rule_id])} would have several drafts")
    if drafts.total() > DRAFTS_MAX and any(rule.draft_of is not None for rule in coming):
        yield Entry(1400, f"the detector would have {drafts.total()} drafts; limit {DRAFTS_MAX}")
    put = [(rule, book.births_of(rule, history)) for rule, history in change.put]
    needed = [(rule, requirements_of(rule.condition, births)) for rule, births in put]
    yield from book.budgets.exceeded(needed, [book.live[rule.id] for rule in going])
