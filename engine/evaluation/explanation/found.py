"""What a rule finds at an event: its keys, the values of its counting members and terms, and witnesses.

How to find it is worked out once for each rule. To look up what belongs to a condition takes longer than the
rest, since conditions are compared by all that is in them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Final, NamedTuple

from engine.evaluation.explanation.explaining import Explaining, Reading
from engine.evaluation.explanation.past import Past
from engine.evaluation.facts.values import key_of
from engine.evaluation.kernel.code.node_code import MemoryCode, VerdictCode, memory_code, verdict_code
from engine.evaluation.kernel.rule_set import EnabledRule
from engine.evaluation.operators.compare import found_in
from engine.evaluation.operators.interface import Operator, Settled
from engine.evaluation.operators.table import operator_of, parts_of, remembering
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.requirements import Births, inside, keys_of, requirements_of
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.slices import Remembered
from engine.evaluation.stamps import NUMBER_BITS, stamp_of
from engine.language import condition as language
from engine.language.condition import Condition, Predicate
from engine.language.text.printer import format as format_condition
from engine.language.text.printer import format_term

_FINDING: Final = (
    *(language.Count, language.CountSince, language.Distinct, language.Sum, language.Avg),
    language.Compare,
)
"""Members that compare what they find."""

_TEXT_CHARS_MAX: Final = 200
"""The text of what looks back is cut after so many characters."""

_CONDITION_CHARS_MAX: Final = 500
"""The same for a whole condition."""

_Truth = Callable[[Reading], bool]
"""Gives the truth of a condition at an event."""


class Plan(NamedTuple):
    """How to find what a rule finds."""

    enabled: EnabledRule
    """The rule for which this was worked out."""
    size: int
    """The number of nodes of its condition."""
    text: str
    """That of its condition, cut where it is long."""
    keys: tuple[str, ...]
    members: tuple["_Member", ...]
    """Its counting members and comparisons of terms."""
    looking_back: tuple["_Member", ...]
    """Its other members that look back."""

    def witnesses(self, event: Reading) -> dict[str, int]:
        """Return the times of the events that make what looks back true, by its texts, in microseconds."""
        value = event.predicates.value
        return {
            member.texts[0]: witness_us
            for member in self.looking_back
            if all(key_of(value(key)) is not None for key in member.keys)
            if (witness_us := member.witness_us(event)) is not None
        }

    def found(self, event: Reading) -> dict[str, Any]:
        """Return what the counting members and the terms find at an event, by their texts."""
        found: dict[str, Any] = {}
        value = event.predicates.value
        for member in self.members:
            if all(key_of(value(key)) is not None for key in member.keys):
                for text, number in member.found(event):
                    # The same text may stand under other keys.
                    found[member.said_keys + text if text in found else text] = number
        return found


class _Member(NamedTuple):
    """A member that looks back, or a comparison of terms."""

    node: Condition
    keys: tuple[str, ...]
    """The keys around it, without which there is nothing to find."""
    said_keys: str
    texts: tuple[str, ...]
    """The texts of what it finds."""
    parts: tuple[tuple[MemoryCode, Remembered, bool, int], ...]
    """The parts of it with a memory, each with whether the event itself does not count, and its birth."""
    code: VerdictCode
    operator: Operator[Any] | None
    """That of a member that looks back."""
    truths: tuple[_Truth, ...]
    """Those of the conditions in it."""

    def found(self, event: Reading) -> Iterator[tuple[str, Any]]:
        """Yield what it finds, each with its text. What is missing, or no JSON has, is left out."""
        value = event.predicates.value
        pasts, truths = self._read(event)
        now_us = event.now_us
        values: Sequence[Any]
        if self.operator is None:
            at, code = [past.at(truths) for past in pasts], self.code
            values = code.found(at, now_us << NUMBER_BITS, (*map(value, code.facts), *code.constants))
        else:
            [past] = pasts
            _, entry, *_ = past.after(truths, stamp_of(now_us, event.entries.number))
            # What it counts depends neither on its verdict nor on what the event is to it.
            settled = Settled(entry, past.born, now_us, outcome=None, verdict=False)
            values = (self.operator.found(self.node, settled),)
        for text, one in zip(self.texts, values, strict=True):
            if one is not None and not (type(one) is float and not isfinite(one)):
                yield text, one

    def witness_us(self, event: Reading) -> int | None:
        """Return the time of the event that makes it true; None if it is not true, or no single one does."""
        [past], truths = self._read(event)
        read, now_us, code = past.at(truths), event.now_us, self.code
        values = (*map(event.predicates.value, code.facts), *code.constants)
        if not code.verdict([read], now_us << NUMBER_BITS, values):
            return None
        _, entry, *_ = past.after(truths, stamp_of(now_us, event.entries.number))
        assert self.operator is not None, "it looks back"
        return self.operator.witness_us(self.node, Settled(entry, past.born, now_us, read[0], verdict=True))

    def _read(self, event: Reading) -> tuple[list[Past], tuple[bool, ...]]:
        """Return what its parts remember, and the truths of the conditions in it."""
        value = event.predicates.value
        pasts = [
            Past(
                memory=one.memory,
                code=code,
                before=event.entries.of(one),
                values=(*map(value, code.facts), *code.constants),
                looks_before=looks_before,
                born=born,
            )
            for code, one, looks_before, born in self.parts
        ]
        return pasts, tuple([truth(event) for truth in self.truths])


def plan_of(event: Reading, priority: int) -> Plan:
    """Return how to find what an enabled rule finds. It is kept until the rule changes."""
    enabled, plans = event.rule_set.enabled[priority], event.rule_set.plans
    plan: Plan | None = plans.get(priority)
    if plan is None or plan.enabled is not enabled:
        condition = enabled.rule.condition
        members = [*_members(event, (condition, enabled.births, ()), ())]
        finding = tuple([one for one in members if isinstance(one.node, _FINDING)])
        others = tuple([one for one in members if not isinstance(one.node, _FINDING)])
        text = _cut(format_condition(condition), _CONDITION_CHARS_MAX)
        plan = Plan(enabled, requirements_of(condition).size, text, keys_of(condition), finding, others)
        plans[priority] = plan
    return plan


def _members(
    event: Reading, placed: tuple[Condition, Births, Path], keys: tuple[str, ...]
) -> Iterator[_Member]:
    """Yield the members that find something or look back, in the order of the condition."""
    condition, births, path = placed
    if isinstance(condition, language.Keyed):
        longer = births.step(condition, path)
        # Without the key, nothing in it is asked for: `where`, too, is explained only with the key.
        keys = (*keys, condition.key)
        yield from _members(event, (condition.inner, births, longer), keys)
        if condition.where is not None:
            around = births.of_where(condition, path)
            yield from _members(event, (condition.where, around, path), keys)
        return
    children = [*inside(condition, births, path)]
    if isinstance(condition, _FINDING) or operator_of(condition) is not None:
        yield _Member(
            node=condition,
            keys=keys,
            said_keys="".join(f"per {fact_of(step)} " for step in path),
            texts=_texts(condition),
            parts=tuple(_parts(condition, event.rule_set.histories, births, path)),
            code=verdict_code(condition),
            operator=operator_of(condition),
            truths=tuple(_truth(event, *child) for child in children),
        )
    for child in children:
        yield from _members(event, child, keys)


def _parts(
    condition: Condition, histories: Histories, births: Births, path: Path
) -> Iterator[tuple[MemoryCode, Remembered, bool, int]]:
    for place, part in enumerate(parts_of(condition)):
        own = births.of(part, path)
        remembered = histories.of(part, path, own.birth)
        yield memory_code(condition, place), remembered, remembering(part).looks_before(part), own.born


def _texts(condition: Any) -> tuple[str, ...]:
    if isinstance(condition, language.Compare):
        return tuple(map(format_term, found_in(condition)))
    if type(condition) not in _FINDING:
        return (_cut(format_condition(condition), _TEXT_CHARS_MAX),)
    # Its text before the comparison.
    return (format_condition(replace(condition, op="gt", value=0)).removesuffix(" > 0"),)


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[:chars_max]}…"


def _truth(event: Reading, condition: Condition, births: Births, path: Path) -> _Truth:
    """Return what gives the truth of a condition under a path at each event."""
    match condition:
        case language.All(members) | language.Any(members):
            truths = [_truth(event, member, births, path) for member in members]
            joined = all if isinstance(condition, language.All) else any
            return lambda at: joined(truth(at) for truth in truths)
        case language.Not(inner):
            negated = _truth(event, inner, births, path)
            return lambda at: not negated(at)
        case language.Leaf() | language.Ref() if code := event.predicates.lasting_code(condition):
            return lambda at: at.predicates.truth_of(code)
        case _ if isinstance(condition, Predicate):
            return lambda at: at.predicates.truth(condition)
        case _:
            return lambda at: Explaining(at).node(condition, births, path).verdict
