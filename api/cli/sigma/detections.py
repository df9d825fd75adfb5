"""Converts the detection of a Sigma rule, and the user's mapping of its log source, into conditions."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.rule import SigmaRule
from sigma.rule.logsource import SigmaLogSource
from sigma.types import SigmaString

from api.cli.sigma.values import LeftOut, alternatives, keyword
from engine.evaluation.facts.look_up import ELEMENT
from engine.language.condition import All, Any, Anywhere, Condition, InNetwork, Leaf, Not
from engine.language.text.printer import comparison_text

_SHAPE: Final = re.compile(r"((?:\(\?[si]+\)\^?)?).*?(?<!\\)(?:\\\\)*(\$?)", re.DOTALL)
"""Matches the beginning and end of a regular expression, which distinguish the forms of texts."""
SOURCE_PARTS = ("PRODUCT", "CATEGORY", "SERVICE")


def detection_condition(rule: SigmaRule, keyword_fields: Sequence[str]) -> Condition:
    """Return the condition of a rule without its log source. Raises LeftOut and SigmaError.

    A rule with several conditions is true if one of them is.
    """
    found = []
    for each in rule.detection.parsed_condition:
        found += _alternatives(each.parsed, keyword_fields)
    return any_of(found)


def _alternatives(parsed: object, keyword_fields: Sequence[str]) -> list[Condition]:
    """Return alternative conditions, so that those on the same field can be joined."""
    match parsed:
        case ConditionOR(args):
            return [one for each in _left(args) for one in _alternatives(each, keyword_fields)]
        case ConditionAND(args):
            return [all_of(any_of(_alternatives(each, keyword_fields)) for each in _left(args))]
        case ConditionNOT([arg]):
            return [Not(any_of(_alternatives(arg, keyword_fields)))]
        case ConditionFieldEqualsValueExpression(field, value):
            return alternatives(field, value)
        case ConditionValueExpression(value):
            if not keyword_fields:
                return [Anywhere(any_of(keyword(ELEMENT, value)))]
            return [one for field in keyword_fields for one in keyword(field, value)]
        case None:
            raise LeftOut("the pipeline removed its detection")
        case _:
            raise AssertionError(parsed)


def _left(args: Iterable[object]) -> list[object]:
    """Return the parts of a detection that the pipeline has left. None means that it left none."""
    return [each for each in args if each is not None] or [None]


def all_of(members: Iterable[Condition]) -> Condition:
    """Return the condition that all are true, flattening nested `all`. `x > 5` stays whole."""
    flat: list[Condition] = []
    for member in members:
        is_all = isinstance(member, All) and comparison_text(member.members) is None
        flat += member.members if is_all else [member]  # type: ignore[union-attr]
    return flat[0] if len(flat) == 1 else All(tuple(flat))


def any_of(members: Iterable[Condition]) -> Condition:
    """Return the condition that one is true. Conditions of the same form on the same field are joined."""
    groups: dict[object, list[Condition]] = {}
    for member in members:
        groups.setdefault(_form(member), []).append(member)
    joined = [_joined(group) for group in groups.values()]
    return joined[0] if len(joined) == 1 else Any(tuple(joined))


def _form(condition: Condition) -> object:
    """Return a key that is equal for conditions that can be joined."""
    match condition:
        case Leaf(fact, "eq", str()):
            return fact, str
        case Leaf(fact, "eq", int() | float() as value) if not isinstance(value, bool):
            return fact, float
        case Leaf(fact, "matches", str(pattern)):
            shape = _SHAPE.fullmatch(pattern)
            return fact, shape and shape.groups()
        case InNetwork(fact):
            return fact, InNetwork
        case Anywhere():
            return Anywhere
        case _:
            return condition


def _joined(group: Iterable[Condition]) -> Condition:
    match tuple(dict.fromkeys(group)):
        case (only,):
            return only
        case (Leaf(fact, "eq"), *_) as leaves:
            return Leaf(fact, "in", tuple(leaf.value for leaf in leaves))  # type: ignore[union-attr,misc]
        case (InNetwork(fact), *_) as leaves:
            networks = tuple(network for leaf in leaves for network in leaf.networks)  # type: ignore[union-attr]
            return InNetwork(fact, networks)
        case (Anywhere(), *_) as several:
            return Anywhere(any_of(each.inner for each in several))  # type: ignore[union-attr]
        case members:
            return Any(members)


class Mapping(NamedTuple):
    """The values of a field in events of a log source. None means any product, category or service."""

    product: str | None
    category: str | None
    service: str | None
    condition: Condition

    def covers(self, source: SigmaLogSource) -> bool:
        """Return whether the mapping applies to rules for a log source."""
        return all(
            wanted is None or wanted == (given or "").lower()
            for wanted, given in (
                (self.product, source.product),
                (self.category, source.category),
                (self.service, source.service),
            )
        )


def read_mapping(text: str) -> Mapping:
    """Read `PRODUCT/CATEGORY/SERVICE:FIELD=VALUE|VALUE…`. Raises ValueError.

    A part that is empty, `*` or omitted at the end matches any. Values are in Sigma's syntax.
    """
    source, colon, test = text.partition(":")
    field, equals, values = test.partition("=")
    parts = [None if part in ("", "*") else part.lower() for part in source.split("/")]
    if not (colon and equals and field and any(parts)) or len(parts) > len(SOURCE_PARTS):
        raise ValueError(f"expected {'/'.join(SOURCE_PARTS)}:FIELD=VALUE, got `{text}`")
    product, category, service = [*parts, None, None][: len(SOURCE_PARTS)]
    try:
        each = [one for value in values.split("|") for one in alternatives(field, SigmaString(value))]
    except LeftOut as error:
        raise ValueError(str(error)) from None
    return Mapping(product, category, service, any_of(each))


def conditions_for(source: SigmaLogSource, mappings: Sequence[Mapping]) -> list[Condition]:
    """Return the conditions of all mappings that cover a log source."""
    return [mapping.condition for mapping in mappings if mapping.covers(source)]
