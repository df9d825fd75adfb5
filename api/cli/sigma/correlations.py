"""Correlation rules: counts and orders of events that other rules match, as one condition."""

from collections.abc import Callable, Sequence
from typing import Final

from sigma.correlations import (
    CorrelationConditionAND,
    CorrelationConditionItem,
    CorrelationConditionNOT,
    CorrelationConditionOR,
    SigmaCorrelationCondition,
    SigmaCorrelationConditionOperator,
    SigmaCorrelationRule,
    SigmaCorrelationType,
    SigmaExtendedCorrelationCondition,
    SigmaRuleReference,
)
from sigma.exceptions import SigmaCorrelationRuleError

from api.cli.sigma.detections import all_of, any_of
from api.cli.sigma.sources import Rule
from api.cli.sigma.values import LeftOut, named
from engine.language.condition import (
    Avg,
    Condition,
    Count,
    Distinct,
    EarlierWithin,
    Keyed,
    Not,
    OnceWithin,
    Sum,
)
from engine.language.operators import COUNT_MAX

_COUNTING: Final = (SigmaCorrelationType.EVENT_COUNT, SigmaCorrelationType.VALUE_COUNT)
_TEMPORAL: Final = (SigmaCorrelationType.TEMPORAL, SigmaCorrelationType.TEMPORAL_ORDERED)
_REACHED: Final = (SigmaCorrelationConditionOperator.GTE, SigmaCorrelationConditionOperator.EQ)


def correlation_condition(rule: SigmaCorrelationRule, condition_of: Callable[[Rule], Condition]) -> Condition:
    """Return the condition of a correlation, given those of its rules. Raises LeftOut.

    The condition is true only at events that one of these rules matches.
    """
    for error in rule.errors:
        if isinstance(error, SigmaCorrelationRuleError):
            raise error
    if not rule.referenced_rules:
        raise LeftOut("it refers to no rules")
    keys = [_field(rule, name) for name in rule.group_by or ()]
    for reference in rule.referenced_rules:
        _check_keys(reference.rule, keys)
    inner = {each.reference: condition_of(each.rule) for each in rule.referenced_rules}
    if rule.type in _TEMPORAL:
        found = _in_time(rule, inner)
    else:
        matched = any_of(inner.values())
        found = all_of([matched, _number(rule, matched)])
    for key in reversed(keys):
        found = Keyed(found, key)
    return found


def _field(rule: SigmaCorrelationRule, name: str) -> str:
    """Return the field that a name of a correlation means. Raises LeftOut if it differs between rules."""
    alias = rule.aliases.aliases.get(name)
    if alias is None:
        return named(name)
    fields = set(alias.mapping.values())
    if len(fields) == 1 and len(alias.mapping) == len(rule.referenced_rules):
        return named(fields.pop())
    raise LeftOut(f"the alias `{name}` stands for several fields, not for one; rename them with a --pipeline")


def _check_keys(rule: Rule, keys: Sequence[str]) -> None:
    """Raise LeftOut if a nested correlation would see too few events, only those of the outer keys."""
    if isinstance(rule, SigmaCorrelationRule):
        missing = set(keys) - {_field(rule, name) for name in rule.group_by or ()}
        if missing:
            raise LeftOut("its `group-by` has fields that the referenced correlation lacks")


def _number(rule: SigmaCorrelationRule, matched: Condition) -> Condition:
    """Return the comparison of a number over the events of the timespan. Raises LeftOut."""
    condition, seconds = rule.condition, rule.timespan.seconds
    assert isinstance(condition, SigmaCorrelationCondition), "pySigma checks it"
    op, value = condition.op.name.lower(), condition.count
    if rule.type in _COUNTING and not (isinstance(value, int) and 0 <= value <= COUNT_MAX):
        raise LeftOut(f"counts are compared with whole numbers up to {COUNT_MAX}, not with {value}")
    if rule.type is SigmaCorrelationType.EVENT_COUNT:
        return Count(matched, seconds, op, int(value))
    field = _field(rule, _only_field(condition))
    match rule.type:
        case SigmaCorrelationType.VALUE_COUNT:
            return Distinct(field, matched, seconds, op, int(value))
        case SigmaCorrelationType.VALUE_SUM:
            return Sum(field, matched, seconds, op, value)
        case SigmaCorrelationType.VALUE_AVG:
            return Avg(field, matched, seconds, op, value)
        case _:
            raise LeftOut(f"the language has nothing for `{rule.type.name.lower()}`")


def _only_field(condition: SigmaCorrelationCondition) -> str:
    match condition.fieldref:
        case str(field) | [field]:
            return field
        case _:
            raise LeftOut("the language counts the values of one field, not combinations of several")


def _in_time(rule: SigmaCorrelationRule, inner: dict[str, Condition]) -> Condition:
    """Return the condition that the rules matched within the timespan, in any order or in the given one."""
    condition, seconds = rule.condition, rule.timespan.seconds
    ordered = rule.type is SigmaCorrelationType.TEMPORAL_ORDERED
    if isinstance(condition, SigmaExtendedCorrelationCondition):
        if ordered:
            raise LeftOut("an expression over rules says nothing about their order")
        happened = _expression(condition.parsed, inner, seconds)
        return all_of([any_of(inner.values()), happened])
    if condition.op not in _REACHED or condition.count != len(inner):
        raise LeftOut("only a temporal correlation of all its rules has a condition, not one of some of them")
    if not ordered:
        return all_of([any_of(inner.values()), *(OnceWithin(each, seconds) for each in inner.values())])
    first, *others = inner.values()
    found = first
    for each in others:
        found = all_of([each, EarlierWithin(found, seconds)])
    return found


def _expression(
    parsed: CorrelationConditionItem | SigmaRuleReference, inner: dict[str, Condition], seconds: int
) -> Condition:
    match parsed:
        case SigmaRuleReference(reference):
            return OnceWithin(inner[reference], seconds)
        case CorrelationConditionNOT([arg]):
            return Not(_expression(arg, inner, seconds))
        case CorrelationConditionAND(args):
            return all_of(_expression(each, inner, seconds) for each in args)
        case CorrelationConditionOR(args):
            return any_of(_expression(each, inner, seconds) for each in args)
        case _:
            raise AssertionError(parsed)
