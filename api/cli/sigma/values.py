"""Converts a value of a Sigma rule into alternative conditions on a field."""

import re
from typing import Final

from sigma.types import (
    CompareOperators,
    Placeholder,
    SigmaBool,
    SigmaCasedString,
    SigmaCIDRExpression,
    SigmaCompareExpression,
    SigmaExists,
    SigmaExpansion,
    SigmaFieldReference,
    SigmaNull,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaString,
    SigmaTimestampPart,
    SigmaType,
    SpecialChars,
    TimestampPart,
)

from engine.language.condition import All, Condition, InNetwork, Leaf, Not, Ref
from engine.language.operators import LARGEST

_SPECIAL: Final = re.compile(r"[\\.+*?()\[\]{}^$|]")
_NUMBER: Final = re.compile(r"-?[1-9][0-9]{0,18}|0|-?(?:0|[1-9][0-9]{0,7})\.[0-9]{0,6}[1-9]")
"""A number in its usual notation."""
_TIMES: Final[dict[TimestampPart, str]] = {
    TimestampPart.YEAR: "^{:04d}-",
    TimestampPart.MONTH: r"^\d{{4}}-{:02d}",
    TimestampPart.DAY: r"^\d{{4}}-\d\d-{:02d}",
    TimestampPart.HOUR: r"^\d{{4}}-\d\d-\d\d[Tt ]{:02d}",
    TimestampPart.MINUTE: r"^\d{{4}}-\d\d-\d\d[Tt ]\d\d:{:02d}",
}
"""Patterns for the parts of a time in ISO 8601."""


class LeftOut(Exception):
    """A rule, or a part of it, cannot be converted. The message is the reason."""


def alternatives(field: str, value: SigmaType) -> list[Condition]:
    """Return alternative conditions that the field has this value. Raises LeftOut."""
    named(field)
    match value:
        case SigmaString():
            return _texts(field, value)
        case SigmaTimestampPart():
            return [_time_part(field, value)]
        case SigmaNumber(number=float() as number) if number.is_integer():
            raise LeftOut(f"pySigma rounds the number {number:.0f}; write it as a text")
        case SigmaNumber(number=number):
            return [Leaf(field, "eq", number), Leaf(field, "eq", str(number))]
        case SigmaBool(boolean):
            return [Leaf(field, "eq", boolean), *_equal_text(field, str(boolean).lower())]
        case SigmaNull():
            return [Not(exists(field))]
        case SigmaExists(expected):
            return [exists(field) if expected else Not(exists(field))]
        case SigmaExpansion(values):
            return [one for each in values for one in alternatives(field, each)]
        case SigmaRegularExpression():
            return [Leaf(field, "matches", _regular_expression(value))]
        case SigmaCIDRExpression():
            return [InNetwork(field, (str(value.network),))]
        case SigmaCompareExpression():
            return [_comparison(field, value)]
        case SigmaFieldReference(other, starts_with, ends_with):
            if starts_with or ends_with:
                raise LeftOut("the language compares whole fields, not a part of one with another")
            return [Ref(field, "eq", named(other))]
        case _:
            raise LeftOut(f"the language has nothing for pySigma's `{type(value).__name__}`")


def named(field: str) -> str:
    """Return the name of a field. Raises LeftOut if it would be a variable."""
    if field.startswith("$"):
        raise LeftOut(f"a field cannot be called `{field}`: names that begin with `$` are variables")
    return field


def keyword(field: str, value: SigmaType) -> list[Condition]:
    """Return alternative conditions that the field contains this value. Raises LeftOut."""
    match value:
        case SigmaExpansion(values):
            return [one for each in values for one in keyword(field, each)]
        case SigmaNumber(number=number):
            return keyword(field, SigmaString(str(number)))
        case SigmaString():
            return alternatives(field, SpecialChars.WILDCARD_MULTI + value + SpecialChars.WILDCARD_MULTI)
        case _:
            return alternatives(field, value)


def exists(field: str) -> Condition:
    """Return the condition that a field has any value but null."""
    return Ref(field, "eq", field)


def _texts(field: str, value: SigmaString) -> list[Condition]:
    """Return alternative conditions for a text with wildcards, in the text forms of the language.

    A text without wildcards also matches the number or boolean with that text.
    """
    cased = isinstance(value, SigmaCasedString)
    flag = "s" if cased else "i"
    match _parts(value):
        case []:
            return [Leaf(field, "eq", "")]
        case [SpecialChars.WILDCARD_MULTI]:
            return [exists(field)]
        case [str(text)]:
            own = [Leaf(field, "eq", text)] if cased else _equal_text(field, text)
            return [*own, *_spelled(field, text)]
        case [str(text), SpecialChars.WILDCARD_MULTI]:
            return [Leaf(field, "matches", f"(?{flag})^{_quoted(text)}")]
        case [SpecialChars.WILDCARD_MULTI, str(text)]:
            return [Leaf(field, "matches", f"(?{flag}){_quoted(text)}$")]
        case [SpecialChars.WILDCARD_MULTI, str(text), SpecialChars.WILDCARD_MULTI] if not cased:
            return [Leaf(field, "matches", f"(?i){_quoted(text)}")]
        case parts:
            flags = "s" if cased else "si"
            return [Leaf(field, "matches", f"(?{flags})^{''.join(map(_pattern, parts))}$")]


def _parts(value: SigmaString) -> list[str | SpecialChars]:
    """Return the texts and wildcards of a value, as few as possible. Raises LeftOut."""
    parts: list[str | SpecialChars] = []
    for part in value.s:
        if isinstance(part, Placeholder):
            raise LeftOut(f"the placeholder `%{part.name}%` has no value; a --pipeline can give it one")
        last = parts[-1] if parts else ""
        if isinstance(part, str) and isinstance(last, str):
            parts[-1:] = [last + part] if last + part else []
        elif not (part is last is SpecialChars.WILDCARD_MULTI):
            parts.append(part)
    return parts


def _pattern(part: str | SpecialChars) -> str:
    match part:
        case SpecialChars.WILDCARD_MULTI:
            return ".*"
        case SpecialChars.WILDCARD_SINGLE:
            return "."
        case _:
            return _quoted(part)


def _quoted(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)


def _equal_text(field: str, text: str) -> list[Condition]:
    """Return the condition that a text is equal except for case; without letters, a cheaper equality."""
    if text.lower() == text.upper():
        return [Leaf(field, "eq", text)]
    return [Leaf(field, "matches", f"(?i)^{_quoted(text)}$")]


def _spelled(field: str, text: str) -> list[Condition]:
    """Return the conditions that the field is the number or boolean with this text, if any."""
    if text.lower() in ("true", "false"):
        return [Leaf(field, "eq", text.lower() == "true")]
    if not _NUMBER.fullmatch(text):
        return []
    return [Leaf(field, "eq", float(text) if "." in text else int(text))]


def _regular_expression(value: SigmaRegularExpression) -> str:
    if value.contains_placeholder():
        raise LeftOut("its regular expression has a placeholder; a --pipeline can give it a value")
    return value.escape([], escape_escape_char=False, flag_prefix=True)


def _comparison(field: str, value: SigmaCompareExpression) -> Condition:
    number = value.number.number
    if isinstance(value.number, SigmaTimestampPart):
        raise LeftOut("the language cannot compare a part of a time in a field")
    other = Leaf(field, "neq", number)
    match value.op:
        case CompareOperators.GTE:
            return Leaf(field, "between", (number, LARGEST))
        case CompareOperators.LTE:
            return Leaf(field, "between", (-LARGEST, number))
        case CompareOperators.GT:
            return All((Leaf(field, "between", (number, LARGEST)), other))
        case CompareOperators.LT:
            return All((Leaf(field, "between", (-LARGEST, number)), other))
        case CompareOperators.NEQ:
            return other


def _time_part(field: str, value: SigmaTimestampPart) -> Condition:
    pattern = _TIMES.get(value.timestamp_part)
    if pattern is None:
        raise LeftOut("the language cannot tell the week of a time in a field")
    return Leaf(field, "matches", pattern.format(value.number))
