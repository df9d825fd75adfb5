"""What a valid condition is: a document is judged whole, and every defect is told with its place."""

from collections.abc import Callable, Mapping
from typing import Any as Anything
from typing import TypeVar

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
from engine.language.diagnostics import ConditionError, Source
from engine.language.limits import Limits
from engine.language.validation.size import check_size
from engine.language.validation.values import LEAF_OPS, Values, is_array
from engine.language.validation.violations import Defect, Defects, Spot, kind, meant, named

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

_Fields = dict[str, Callable[[Anything, Spot], object]]
"""For each member of an object, what judges it: gives the value, or a Defect."""

_Made = TypeVar("_Made")


def judge(
    document: object, limits: Limits, source: Source | None = None, *, is_stored: bool = False
) -> Condition:
    """Give the condition, or raise ConditionError: 1303 alone, else all of 1301 and 1302 in document order.

    `source` is the text that the document was read from; its lines and columns are then told too. One that
    `is_stored` was judged before, and its patterns are not compiled again.
    """
    check_size(document, limits)
    defects = Defects(source)
    values = Values(defects, limits, is_stored=is_stored)
    condition = _Conditions(defects, values).condition(document, defects.root())
    if isinstance(condition, Defect):
        raise ConditionError(*defects.entries)
    return condition


class _Conditions:
    """Judges the conditions of one document; each method gives one, or tells what is wrong with it."""

    def __init__(self, defects: Defects, values: Values) -> None:
        self._tell = defects.tell
        self._values = values

    def condition(self, value: object, spot: Spot) -> Condition | Defect:
        if not isinstance(value, Mapping):
            return self._tell(spot, f"expected an object with one member, got {kind(value)}")
        if len(value) != 1:
            got = named(map(str, value)) if value else "none"
            self._tell(spot, f"expected exactly one member, got {got}")
        judged = [
            self._member(str(name), content, spot.member(value, str(name))) for name, content in value.items()
        ]
        return judged[0] if len(judged) == 1 else Defect.TOLD

    def _member(self, name: str, value: object, spot: Spot) -> Condition | Defect:
        names = self._values.name
        inner: _Fields = {"inner": self.condition}
        both: _Fields = {"left": self.condition, "right": self.condition}
        window: _Fields = {"window_secs": self._values.window}
        match name:
            case "leaf":
                return self._leaf(value, spot)
            case "ref":
                fields: _Fields = {"fact": names, "op": self._values.one_of(REF_OPS), "reference": names}
                return self._object(Ref, value, spot, fields)
            case "in_relation":
                relation: _Fields = {"args": self._arguments, "relation": self._values.relation}
                return self._object(InRelation, value, spot, relation)
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
                boundary: _Fields = {"boundary": self._values.one_of(BOUNDARIES)}
                return self._object(HistoricallyFor, value, spot, inner | window, boundary)
            case "since_within":
                return self._object(SinceWithin, value, spot, both | window)
            case "keyed":
                return self._object(Keyed, value, spot, inner | {"key": names})
            case _:
                return self._tell(spot, f"unknown member{meant(name, MEMBERS)}")

    def _leaf(self, value: object, spot: Spot) -> Condition | Defect:
        op = value.get("op") if isinstance(value, Mapping) else None

        def operand(content: object, at: Spot) -> LeafValue | Defect:
            return self._values.operand(op, content, at)

        fields: _Fields = {"fact": self._values.name, "op": self._values.one_of(LEAF_OPS), "value": operand}
        return self._object(Leaf, value, spot, fields)

    def _around(
        self, make: Callable[[Condition], Condition], value: object, spot: Spot
    ) -> Condition | Defect:
        inner = self.condition(value, spot)
        return inner if isinstance(inner, Defect) else make(inner)

    def _group(
        self, make: Callable[[tuple[Condition, ...]], Condition], value: object, spot: Spot
    ) -> Condition | Defect:
        if not is_array(value):
            return self._tell(spot, f"expected an array of conditions, got {kind(value)}")
        if not value:
            return self._tell(spot, "expected at least one condition, got none")
        judged = [self.condition(member, spot.element(value, i)) for i, member in enumerate(value)]
        members = tuple(member for member in judged if not isinstance(member, Defect))
        return make(members) if len(members) == len(judged) else Defect.TOLD

    def _arguments(self, value: object, spot: Spot) -> tuple[FactArg | Scalar, ...] | Defect:
        if not is_array(value):
            return self._tell(spot, f"expected an array of arguments, got {kind(value)}")
        judged = [self._argument(argument, spot.element(value, i)) for i, argument in enumerate(value)]
        arguments = tuple(argument for argument in judged if not isinstance(argument, Defect))
        return arguments if len(arguments) == len(judged) else Defect.TOLD

    def _argument(self, value: object, spot: Spot) -> FactArg | Scalar | Defect:
        match value:
            case Mapping():
                return self._object(FactArg, value, spot, {"fact": self._values.name})
            case str() | int() | float():
                return self._values.scalar(value, spot)
            case _:
                return self._tell(spot, f'expected `{{"fact": NAME}}` or a scalar, got {kind(value)}')

    def _object(
        self,
        make: Callable[..., _Made],
        value: object,
        spot: Spot,
        required: _Fields,
        optional: _Fields | None = None,
    ) -> _Made | Defect:
        """Judge an object that has these members, and give what `make` makes of their values."""
        fields = required | (optional or {})
        if not isinstance(value, Mapping):
            return self._tell(spot, f"expected an object with {named(fields)}, got {kind(value)}")
        judged: dict[str, object] = {}
        for name, content in value.items():
            at = spot.member(value, str(name))
            if name in fields:
                judged[name] = fields[name](content, at)
            else:
                judged[name] = self._tell(at, f"unknown member{meant(str(name), fields)}")
        judged |= {
            name: self._tell(spot, f"missing member `{name}`") for name in required if name not in value
        }
        return Defect.TOLD if Defect.TOLD in judged.values() else make(**judged)
