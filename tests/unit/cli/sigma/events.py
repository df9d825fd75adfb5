"""Events that match a Sigma rule, and some that nearly do, made from the rule."""

import re
from collections.abc import Iterator
from random import Random
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as patterns  # type: ignore[attr-defined]
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
from sigma.types import CompareOperators, SpecialChars

from tests.unit.cli.sigma.matcher import PARTS, Event, Test

ANY = SpecialChars.WILDCARD_MULTI
TRIES = 300
ANY_FIELDS = ("Message", "Data")
"""Fields in which keywords are put if rules search the whole event."""


def positive(rule: SigmaRule, matches: Test, random: Random, keyword_fields: tuple[str, ...] = ()) -> Event:
    """Return an event that the matcher says matches, or one that nearly does if none is found."""
    trees = [condition.parsed for condition in rule.detection.parsed_condition]
    for _ in range(TRIES):
        wanted: dict[str, list[sigma.SigmaType]] = {}
        want(random.choice(trees), True, wanted, random, keyword_fields)
        event = made(wanted, random)
        if matches(event):
            break
    return event


def others(
    rule: SigmaRule, event: Event, random: Random, keyword_fields: tuple[str, ...] = ()
) -> Iterator[Event]:
    """Yield events that differ from this one in what a rule asks or excludes, or in any field."""
    for condition in rule.detection.parsed_condition:
        wanted: dict[str, list[sigma.SigmaType]] = {}
        want(condition.parsed, False, wanted, random, keyword_fields)
        yield {**event, **made(wanted, random)}
    for name, value in event.items():
        rest = {other: each for other, each in event.items() if other != name}
        yield rest
        yield rest | {name: "something else"}
        yield rest | {name: 17}
        yield rest | {name: f"x{value}y" if isinstance(value, str) else str(value)}
        yield rest | {name: [value]}
        yield rest | {name: {"inside": [{"it": value}]}}
    yield {}


def want(
    node: Any, truth: bool, wanted: dict[str, Any], random: Random, keyword_fields: tuple[str, ...]
) -> None:
    """Note the values that fields must have so that a part of a rule is true, or some part of it false."""
    match node:
        case ConditionNOT([arg]):
            want(arg, not truth, wanted, random, keyword_fields)
        case ConditionAND(args) | ConditionOR(args):
            is_every = isinstance(node, ConditionAND) is truth
            for arg in args if is_every else [random.choice(args)]:
                want(arg, truth, wanted, random, keyword_fields)
        case ConditionFieldEqualsValueExpression(field, value) if truth:
            wanted.setdefault(field, []).append(value)
        case ConditionFieldEqualsValueExpression(field, sigma.SigmaNull()):
            wanted.setdefault(field, []).append(sigma.SigmaExists(True))
        case ConditionFieldEqualsValueExpression(field, sigma.SigmaFieldReference(other)):
            for each in (field, other):
                wanted.setdefault(each, []).append(sigma.SigmaExists(True))
        case ConditionValueExpression(value) if truth:
            keyword = ANY + value + ANY if isinstance(value, sigma.SigmaString) else value
            wanted.setdefault(random.choice(keyword_fields or ANY_FIELDS), []).append(keyword)


def made(wanted: dict[str, Any], random: Random) -> dict[str, Any]:
    event = {field: value_of(values, random) for field, values in wanted.items()}
    for field, values in wanted.items():
        for value in values:
            if isinstance(value, sigma.SigmaFieldReference):
                event[field] = event[value.field] = event.get(value.field) or "the same"
    return {field: value for field, value in event.items() if value is not None}


def value_of(values: list[sigma.SigmaType], random: Random) -> Any:
    """Return a value that fits all of these, as far as it is simple."""
    chosen = [random.choice(one.values) if isinstance(one, sigma.SigmaExpansion) else one for one in values]
    for one in chosen:
        match one:
            case sigma.SigmaNull() | sigma.SigmaExists(False):
                return None
            case sigma.SigmaTimestampPart():
                text = "2024-03-04T09:15:26Z"
                part = PARTS[one.timestamp_part]
                width = part.stop - part.start
                return text[: part.start] + str(one.number).zfill(width) + text[part.stop :]
            case sigma.SigmaNumber():
                return random.choice([one.number, str(one.number)])
            case sigma.SigmaBool(boolean):
                return random.choice([boolean, str(boolean)])
            case sigma.SigmaCIDRExpression():
                return str(one.network[random.randrange(min(one.network.num_addresses, 1 << 30))])
            case sigma.SigmaCompareExpression():
                above = one.op in (CompareOperators.GT, CompareOperators.GTE)
                return one.number.number + (1 if above else -1)
    texts = [one for one in chosen if isinstance(one, sigma.SigmaString)]
    sampled = [sample(one, random) for one in chosen if isinstance(one, sigma.SigmaRegularExpression)]
    whole = [one for one in texts if not one.contains_special()]
    if whole:
        return cased(whole[0], written(whole[0]), random)
    starts = [cased(one, written(one), random) for one in texts if one.s[0] is not ANY]
    ends = [cased(one, written(one), random) for one in texts if one.s[-1] is not ANY and one.s[0] is ANY]
    inside = [cased(one, written(one), random) for one in texts if one.s[0] is ANY and one.s[-1] is ANY]
    before = sorted(starts, key=len)[-1:] or [random.choice(["", "zz"])]
    after = sorted(ends, key=len)[-1:] or [random.choice(["", "zz"])]
    between = random.choice(["", " "])
    return between.join([*before, *inside, *sampled, *after]) or f"anything {random.random()}"


def written(value: sigma.SigmaString) -> str:
    """Return a text that fits a value."""
    return "".join(part if isinstance(part, str) else "" if part is ANY else "q" for part in value.s)


def cased(value: sigma.SigmaString, text: str, random: Random) -> str:
    if isinstance(value, sigma.SigmaCasedString) or random.random() < 0.5 or not text.isascii():
        return text
    return text.swapcase()


def sample(value: sigma.SigmaRegularExpression, random: Random) -> str:
    """Return a text in which a regular expression is found."""
    return "".join(characters(patterns.parse(str(value.regexp)), random))


def characters(parsed: Any, random: Random) -> Iterator[str]:
    for code, argument in parsed:
        match code:
            case codes.LITERAL:
                yield chr(argument)
            case codes.NOT_LITERAL:
                yield "y" if argument != ord("y") else "z"
            case codes.ANY:
                yield "x"
            case codes.IN:
                yield one_of(argument, random)
            case codes.CATEGORY:
                yield one_of([(code, argument)], random)
            case codes.BRANCH:
                yield from characters(random.choice(argument[1]), random)
            case codes.SUBPATTERN:
                yield from characters(argument[3], random)
            case codes.MAX_REPEAT | codes.MIN_REPEAT:
                least, _, inner = argument
                for _ in range(max(least, 1) if random.random() < 0.5 else least):
                    yield from characters(inner, random)
            case codes.AT:
                pass
            case _:
                raise AssertionError(code)


def one_of(members: Any, random: Random) -> str:
    """Return a character of a class."""
    fitting = [each for each in map(chr, range(32, 127)) if re.fullmatch(class_of(members), each)]
    return random.choice(fitting)


def class_of(members: Any) -> str:
    spelled = {
        codes.CATEGORY_DIGIT: r"\d",
        codes.CATEGORY_NOT_DIGIT: r"\D",
        codes.CATEGORY_SPACE: r"\s",
        codes.CATEGORY_NOT_SPACE: r"\S",
        codes.CATEGORY_WORD: r"\w",
        codes.CATEGORY_NOT_WORD: r"\W",
    }
    found = ""
    for code, argument in members:
        match code:
            case codes.NEGATE:
                found += "^"
            case codes.LITERAL:
                found += re.escape(chr(argument))
            case codes.RANGE:
                found += f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}"
            case codes.CATEGORY:
                found += spelled[argument]
    return f"[{found}]"
