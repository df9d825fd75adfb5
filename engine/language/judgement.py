"""What a valid condition is: a document is judged whole, and every defect is told with its place."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any as Anything
from typing import NamedTuple, TypeGuard, TypeVar

from engine.language.condition import (
    All,
    Any,
    Condition,
    FactArg,
    Historically,
    HistoricallyFor,
    InRelation,
    Keyed,
    Leaf,
    LeafValue,
    Not,
    Once,
    OnceWithin,
    Ref,
    Scalar,
    Since,
    SinceWithin,
)
from engine.language.diagnostics import (
    BAD_PATTERN,
    INVALID,
    ConditionError,
    Entry,
    Source,
    listed,
    nearest,
    quoted,
)
from engine.language.limits import Limits
from engine.language.literals import is_text
from engine.language.located import offset_of
from engine.language.patterns import PatternError, compile_pattern
from engine.language.size import check_size

LEAF_OPS = ("eq", "neq", "in", "nin", "contains", "matches", "between")
REF_OPS = ("eq", "neq", "in", "nin")
BOUNDARIES = ("weak", "strong")
MEMBERS = (
    "leaf",
    "ref",
    "in_relation",
    "all",
    "any",
    "not",
    "once",
    "historically",
    "since",
    "once_within",
    "historically_for",
    "since_within",
    "keyed",
)

_ARRAYS = "an array of strings or of numbers"
_ANY_VALUE = f"a string, a number, a boolean, or {_ARRAYS}"
_VALUES = {
    "eq": _ANY_VALUE,
    "neq": _ANY_VALUE,
    "in": _ARRAYS,
    "nin": _ARRAYS,
    "contains": "a string, a number or a boolean",
    "matches": "a string, a regular expression",
    "between": "an array of two numbers or of two strings, low then high",
}
_ARRAY_OPS = {"eq", "neq", "in", "nin", "between"}
_SCALAR_OPS = {"eq", "neq", "contains"}
_RANGE_ENDS = 2


class _Spot(NamedTuple):
    """A place in a document, and its offset in the text that the document was read from, where known."""

    path: str = ""
    offset: int | None = None

    def member(self, container: object, name: str) -> "_Spot":
        plain = name.isascii() and name.isidentifier()
        step = (f".{name}" if self.path else name) if plain else f"[{quoted(name)}]"
        offset = offset_of(container, name)
        return _Spot(self.path + step, self.offset if offset is None else offset)

    def element(self, container: object, index: int) -> "_Spot":
        offset = offset_of(container, index)
        return _Spot(f"{self.path}[{index}]", self.offset if offset is None else offset)


_Judging = Callable[[Anything, _Spot], Anything]
"""Gives what a part of the document says, or None where it was found defective."""

_Fields = dict[str, _Judging]
_Made = TypeVar("_Made")


def judge(document: object, limits: Limits, source: Source | None = None) -> Condition:
    """Give the condition, or raise ConditionError: 1303 alone, else all of 1301 and 1302 in document order.

    `source` is the text that the document was read from; its lines and columns are then told too.
    """
    check_size(document, limits)
    judging = _Judgement(limits, source)
    condition = judging.condition(document, _Spot())
    if judging.entries:
        raise ConditionError(*judging.entries)
    assert condition is not None
    return condition


class _Judgement:
    """One document being judged: its defects so far."""

    def __init__(self, limits: Limits, source: Source | None) -> None:
        self.entries: list[Entry] = []
        self._limits = limits
        self._source = source

    def condition(self, value: object, spot: _Spot) -> Condition | None:
        if not isinstance(value, Mapping):
            return self._defect(spot, f"expected an object with one member, got {_kind(value)}")
        if len(value) != 1:
            got = listed([quoted(str(name)) for name in value], "and") if value else "none"
            self._defect(spot, f"expected exactly one member, got {got}")
        judged = [
            self._member(str(name), content, spot.member(value, str(name))) for name, content in value.items()
        ]
        return judged[0] if len(judged) == 1 else None

    def _member(self, name: str, value: object, spot: _Spot) -> Condition | None:
        inner: _Fields = {"inner": self.condition}
        both: _Fields = {"left": self.condition, "right": self.condition}
        window: _Fields = {"window_secs": self._window}
        match name:
            case "leaf":
                return self._leaf(value, spot)
            case "ref":
                fields = {"fact": self._name, "op": self._one_of(REF_OPS), "reference": self._name}
                return self._object(Ref, value, spot, fields)
            case "in_relation":
                fields = {"args": self._arguments, "relation": self._relation}
                return self._object(InRelation, value, spot, fields)
            case "all":
                return self._group(All, value, spot)
            case "any":
                return self._group(Any, value, spot)
            case "not":
                return self._around(Not, value, spot)
            case "once":
                return self._around(Once, value, spot)
            case "historically":
                return self._around(Historically, value, spot)
            case "since":
                return self._object(Since, value, spot, both)
            case "once_within":
                return self._object(OnceWithin, value, spot, inner | window)
            case "historically_for":
                boundary: _Fields = {"boundary": self._one_of(BOUNDARIES)}
                return self._object(HistoricallyFor, value, spot, inner | window, boundary)
            case "since_within":
                return self._object(SinceWithin, value, spot, both | window)
            case "keyed":
                return self._object(Keyed, value, spot, inner | {"key": self._name})
            case _:
                return self._unknown(spot, name, MEMBERS)

    def _leaf(self, value: object, spot: _Spot) -> Condition | None:
        op = value.get("op") if isinstance(value, Mapping) else None

        def of_op(operand: object, at: _Spot) -> LeafValue | None:
            return self._operand(op, operand, at)

        return self._object(
            Leaf, value, spot, {"fact": self._name, "op": self._one_of(LEAF_OPS), "value": of_op}
        )

    def _around(self, kind: Callable[[Condition], Condition], value: object, spot: _Spot) -> Condition | None:
        inner = self.condition(value, spot)
        return None if inner is None else kind(inner)

    def _group(
        self, kind: Callable[[tuple[Condition, ...]], Condition], value: object, spot: _Spot
    ) -> Condition | None:
        if not _is_array(value):
            return self._defect(spot, f"expected an array of conditions, got {_kind(value)}")
        if not value:
            return self._defect(spot, "expected at least one condition, got none")
        judged = [self.condition(member, spot.element(value, i)) for i, member in enumerate(value)]
        members = tuple(member for member in judged if member is not None)
        return kind(members) if len(members) == len(judged) else None

    def _object(
        self,
        kind: Callable[..., _Made],
        value: object,
        spot: _Spot,
        required: "_Fields",
        optional: "_Fields | None" = None,
    ) -> _Made | None:
        """Judge an object with these members, and give what `kind` makes of them."""
        fields = required | (optional or {})
        if not isinstance(value, Mapping):
            return self._defect(spot, f"expected an object with {_named(fields)}, got {_kind(value)}")
        judged: dict[str, Anything] = {}
        for name, content in value.items():
            at = spot.member(value, str(name))
            judged[name] = (
                fields[name](content, at) if name in fields else self._unknown(at, str(name), tuple(fields))
            )
        missing = [name for name in required if name not in value]
        if missing:
            self._defect(spot, f"expected {_named(fields)}, {_named(missing)} missing")
        if missing or None in judged.values():
            return None
        return kind(**judged)

    def _operand(self, op: object, value: object, spot: _Spot) -> LeafValue | None:
        """Judge the value of a leaf by its operator; where that is itself no operator, any value will do."""
        expected = _VALUES.get(op if isinstance(op, str) else "", _ANY_VALUE)
        known = expected is not _ANY_VALUE
        if _is_array(value) and (not known or op in _ARRAY_OPS):
            return self._range(value, spot, expected) if op == "between" else self._array(value, spot)
        if isinstance(value, str) and op == "matches":
            return self._pattern(value, spot)
        if isinstance(value, str | int | float) and (not known or op in _SCALAR_OPS):
            return self._scalar(value, spot)
        return self._defect(spot, f"expected {expected}, got {_kind(value)}")

    def _array(self, value: Sequence[object], spot: _Spot) -> tuple[Scalar, ...] | None:
        """Judge an array of strings or of numbers; the first element decides of which."""
        judged: list[Scalar] = []
        for index, element in enumerate(value):
            at = spot.element(value, index)
            if isinstance(element, bool) or not isinstance(element, str | int | float):
                return self._defect(at, f"expected a string or a number, got {_kind(element)}")
            if judged and isinstance(element, str) != isinstance(judged[0], str):
                kind = _kind(judged[0])
                return self._defect(at, f"expected {kind} like the first element, got {_kind(element)}")
            scalar = self._scalar(element, at)
            if scalar is None:
                return None
            judged.append(scalar)
        return tuple(judged)

    def _range(self, value: Sequence[object], spot: _Spot, expected: str) -> tuple[Scalar, ...] | None:
        if len(value) != _RANGE_ENDS:
            return self._defect(spot, f"expected {expected}, got an array of {len(value)}")
        ends = self._array(value, spot)
        match ends:
            case [str() as low, str() as high] if low > high:
                return self._defect(spot, f"expected the low end first, got {quoted(low)} and {quoted(high)}")
            case [int() | float() as low, int() | float() as high] if low > high:
                return self._defect(spot, f"expected the low end first, got `{low}` and `{high}`")
        return ends

    def _pattern(self, value: str, spot: _Spot) -> str | None:
        if self._string(value, spot) is None:
            return None
        try:
            compile_pattern(value, self._limits)
        except PatternError as error:
            return self._defect(spot, f"the regular expression is refused: {error}", BAD_PATTERN)
        return value

    def _scalar(self, value: object, spot: _Spot) -> Scalar | None:
        match value:
            case bool():
                return value
            case str():
                return self._string(value, spot)
            case int() | float():
                return self._number(value, spot)
            case _:
                return self._defect(spot, f"expected a string, a number or a boolean, got {_kind(value)}")

    def _number(self, value: object, spot: _Spot) -> float | None:
        """Judge a number. One that JSON cannot say comes only from callers within the process."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._defect(spot, f"expected a number, got {_kind(value)}")
        if isinstance(value, float):
            return value if math.isfinite(value) else self._defect(spot, "expected a finite number")
        if abs(value) >= 10**self._limits.digits_max:
            return self._defect(spot, f"expected a number of at most {self._limits.digits_max} digits")
        return value

    def _window(self, value: object, spot: _Spot) -> float | None:
        number = self._number(value, spot)
        if number is not None and number < 0:
            return self._defect(spot, "expected a number of seconds that is not negative")
        return number

    def _string(self, value: object, spot: _Spot) -> str | None:
        if not isinstance(value, str):
            return self._defect(spot, f"expected a string, got {_kind(value)}")
        if not is_text(value):
            return self._defect(spot, "expected whole characters, got the half of a surrogate pair")
        return value

    def _relation(self, value: object, spot: _Spot) -> str | None:
        if value == "":
            return self._defect(spot, "expected a name, got an empty string")
        return self._string(value, spot)

    def _name(self, value: object, spot: _Spot) -> str | None:
        if value == "$":
            return self._defect(spot, "expected a name after the `$`")
        return self._relation(value, spot)

    def _arguments(self, value: object, spot: _Spot) -> tuple[FactArg | Scalar, ...] | None:
        if not _is_array(value):
            return self._defect(spot, f"expected an array of arguments, got {_kind(value)}")
        judged = [self._argument(argument, spot.element(value, i)) for i, argument in enumerate(value)]
        arguments = tuple(argument for argument in judged if argument is not None)
        return arguments if len(arguments) == len(judged) else None

    def _argument(self, value: object, spot: _Spot) -> FactArg | Scalar | None:
        if isinstance(value, Mapping):
            return self._object(FactArg, value, spot, {"fact": self._name})
        if isinstance(value, str | int | float):
            return self._scalar(value, spot)
        return self._defect(spot, f'expected `{{"fact": NAME}}` or a scalar, got {_kind(value)}')

    def _one_of(self, allowed: tuple[str, ...]) -> _Judging:
        def judged(value: object, spot: _Spot) -> str | None:
            if isinstance(value, str) and value in allowed:
                return value
            expected = listed([f"`{one}`" for one in allowed])
            if not isinstance(value, str):
                return self._defect(spot, f"expected {expected}, got {_kind(value)}")
            return self._defect(spot, f"expected {expected}, got {quoted(value)}{_meant(value, allowed)}")

        return judged

    def _unknown(self, spot: _Spot, name: str, known: tuple[str, ...]) -> None:
        self._defect(spot, f"unknown member{_meant(name, known)}")

    def _defect(self, spot: _Spot, sentence: str, code: int = INVALID) -> None:
        place = spot.path or "condition"
        where = f" ({self._source.place(spot.offset)})" if self._source and spot.offset is not None else ""
        self.entries.append(Entry(code, f"{place}: {sentence}{where}"))


def _is_array(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _named(names: Iterable[str]) -> str:
    return listed([f"`{name}`" for name in names], "and")


def _meant(word: str, known: tuple[str, ...]) -> str:
    meant = nearest(word, known)
    return f"; did you mean `{meant}`?" if meant else ""


def _kind(value: object) -> str:
    """Give the JSON type of a value, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case Mapping():
            return "an object"
        case _:
            return "what is no JSON"
