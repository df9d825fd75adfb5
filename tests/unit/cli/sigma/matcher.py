"""What a Sigma rule means, over the tree that pySigma parses: as plainly as possible, for one event."""

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import ip_network
from typing import Any

from sigma import types as sigma
from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.rule import SigmaRule
from sigma.types import CompareOperators, SpecialChars, TimestampPart

from tests.reference import strings_of
from tests.reference_values import address, equal, look_up

Event = Mapping[str, Any]
Test = Callable[[Event], bool]

COMPARISONS = {
    CompareOperators.LT: operator.lt,
    CompareOperators.LTE: operator.le,
    CompareOperators.GT: operator.gt,
    CompareOperators.GTE: operator.ge,
}
PARTS = {
    TimestampPart.YEAR: slice(0, 4),
    TimestampPart.MONTH: slice(5, 7),
    TimestampPart.DAY: slice(8, 10),
    TimestampPart.HOUR: slice(11, 13),
    TimestampPart.MINUTE: slice(14, 16),
}
FLAGS = sigma.SigmaRegularExpression.sigma_to_python_flags
lowered = lru_cache(10_000)(str.lower)


def matcher(rule: SigmaRule, keyword_fields: tuple[str, ...] = ()) -> Test:
    """Return the test whether an event matches a rule: one of its conditions."""
    trees = [tree(condition.parsed, keyword_fields) for condition in rule.detection.parsed_condition]
    return lambda event: any(each(event) for each in trees)


def tree(node: Any, keyword_fields: tuple[str, ...]) -> Test:
    match node:
        case ConditionOR(args):
            either = [tree(arg, keyword_fields) for arg in args]
            return lambda event: any(each(event) for each in either)
        case ConditionAND(args):
            both = [tree(arg, keyword_fields) for arg in args]
            return lambda event: all(each(event) for each in both)
        case ConditionNOT([arg]):
            inner = tree(arg, keyword_fields)
            return lambda event: not inner(event)
        case ConditionFieldEqualsValueExpression(field, value):
            return lambda event: holds(value, look_up(field, event, {}), event)
        case ConditionValueExpression(value) if not keyword_fields:
            return lambda event: any(says(value, text, event) for text in strings_of(event))
        case ConditionValueExpression(value):
            return lambda event: any(says(value, look_up(each, event, {}), event) for each in keyword_fields)
    raise AssertionError(node)


def holds(value: sigma.SigmaType, found: Any, event: Event) -> bool:
    """Return whether what a field holds is a value of Sigma; None is a field that is missing."""
    match value:
        case sigma.SigmaExpansion(values):
            return any(holds(each, found, event) for each in values)
        case sigma.SigmaNull():
            return found is None
        case sigma.SigmaExists(expected):
            return (found is not None) is expected
    if found is None:
        return False
    match value:
        case sigma.SigmaString():
            cased = isinstance(value, sigma.SigmaCasedString)
            if set(value.s) == {SpecialChars.WILDCARD_MULTI}:
                return True
            has_wildcards = any(isinstance(part, SpecialChars) for part in value.s)
            text = (found if isinstance(found, str) else None) if has_wildcards else text_of(found)
            return text is not None and is_like(value, text, cased)
        case sigma.SigmaTimestampPart():
            part = found[PARTS[value.timestamp_part]] if isinstance(found, str) else ""
            return part.isdigit() and int(part) == value.number
        case sigma.SigmaNumber():
            return text_of(found) == text_of(value.number)
        case sigma.SigmaBool(boolean):
            return (text_of(found) or "").lower() == text_of(boolean)
        case sigma.SigmaRegularExpression():
            flags = sum(FLAGS[flag] for flag in value.flags)
            return isinstance(found, str) and re.search(str(value.regexp), found, flags) is not None
        case sigma.SigmaCIDRExpression():
            place, network = address(found), ip_network(value.cidr)
            return place is not None and place.version == network.version and place in network
        case sigma.SigmaCompareExpression():
            is_number = isinstance(found, int | float) and not isinstance(found, bool)
            return is_number and COMPARISONS[value.op](found, value.number.number)
        case sigma.SigmaFieldReference(other):
            return look_up(other, event, {}) is not None and equal(found, look_up(other, event, {}))
    raise AssertionError(value)


def says(value: sigma.SigmaType, found: Any, event: Event) -> bool:
    """Return whether a field contains a keyword."""
    match value:
        case sigma.SigmaExpansion(values):
            return any(says(each, found, event) for each in values)
        case sigma.SigmaString():
            anything = SpecialChars.WILDCARD_MULTI
            return holds(anything + value + anything, found, event)
        case sigma.SigmaNumber():
            return isinstance(found, str) and str(value.number) in found
    return holds(value, found, event)


def text_of(found: Any) -> str | None:
    """Return the text of a scalar: `4624` is that of the number, `true` that of the boolean."""
    match found:
        case str():
            return found
        case bool():
            return str(found).lower()
        case int() | float():
            return str(int(found)) if found == int(found) else repr(found)
    return None


def is_like(value: sigma.SigmaString, text: str, cased: bool) -> bool:
    """Return whether a text fits a value with wildcards, without regular expressions."""
    runs: list[list[str | None]] = [[]]
    for part in value.s:
        if part is SpecialChars.WILDCARD_MULTI:
            runs.append([])
        elif isinstance(part, SpecialChars):
            runs[-1].append(None)
        else:
            runs[-1] += part if cased else lowered(part)
    text = text if cased else lowered(text)
    first, *others = runs
    if not others:
        return len(text) == len(first) and fits(first, text, 0)
    *middle, last = others
    at = len(first)
    if not fits(first, text, 0):
        return False
    for run in middle:
        at = place_of(run, text, at)
        if at < 0:
            return False
        at += len(run)
    return at <= len(text) - len(last) and fits(last, text, len(text) - len(last))


def fits(run: list[str | None], text: str, at: int) -> bool:
    """Return whether a run of characters stands there; None is any character."""
    part = text[at : at + len(run)]
    return len(part) == len(run) and all(one in (None, other) for one, other in zip(run, part, strict=True))


def place_of(run: list[str | None], text: str, at: int) -> int:
    if None not in run:
        return text.find("".join(map(str, run)), at)
    return next((place for place in range(at, len(text) + 1) if fits(run, text, place)), -1)
