"""The types of conditions as JSON, for the OpenAPI document."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Window = Annotated[float, Meta(ge=0, description="Seconds; fractions count to the microsecond.")]
Fact = Annotated[str, Meta(min_length=1, description="A name of `event.fields`, or `$` and one of `vars`.")]
LeafValue = Annotated[
    Any,
    Meta(
        description="What the operator takes: a string, number, boolean, or an array of strings or numbers.",
        extra_json_schema={
            "anyOf": [
                {"type": ["string", "number", "boolean"]},
                {"type": "array", "items": {"type": "string"}},
                {"type": "array", "items": {"type": "number"}},
            ]
        },
    ),
]


class FactArgument(Struct, forbid_unknown_fields=True):
    """An argument looked up by its name."""

    fact: Fact


class Leaf(Struct, forbid_unknown_fields=True):
    """A fact compared with a constant."""

    fact: Fact
    op: Literal["eq", "neq", "in", "nin", "contains", "matches", "between"]
    value: LeafValue


class Ref(Struct, forbid_unknown_fields=True):
    """A fact compared with another."""

    fact: Fact
    op: Literal["eq", "neq", "in", "nin"]
    reference: Fact


class InRelation(Struct, forbid_unknown_fields=True):
    """The tuple of the arguments is in the relation. An argument is looked up by name, or is a literal."""

    args: list[FactArgument | str | float | bool]
    relation: Annotated[str, Meta(min_length=1)]


class Since(Struct, forbid_unknown_fields=True):
    """Right was true at some event, and left at every event after it."""

    left: "Condition"
    right: "Condition"


class OnceWithin(Struct, forbid_unknown_fields=True):
    """Inner was true at some event no older than the window."""

    inner: "Condition"
    window_secs: Window


class HistoricallyFor(Struct, forbid_unknown_fields=True):
    """Inner was true at every event within the window; with `strong`, since an event at least that old."""

    inner: "Condition"
    window_secs: Window
    boundary: Literal["weak", "strong"] | UnsetType = UNSET


class SinceWithin(Struct, forbid_unknown_fields=True):
    """The same as since, with right true no longer ago than the window."""

    left: "Condition"
    right: "Condition"
    window_secs: Window


class Keyed(Struct, forbid_unknown_fields=True):
    """Inner, over the events whose key has the same value as now.

    `where` is an addition to the interface: only events at which it is true belong to the history.
    """

    inner: "Condition"
    key: Fact
    where: "Condition | UnsetType" = UNSET


class EarlierWithin(Struct, forbid_unknown_fields=True):
    """An addition to the interface: inner was true at some event before now, no older than the window."""

    inner: "Condition"
    window_secs: Window


Comparison = Literal["gt", "gte", "lt", "lte", "eq", "neq"]
CountValue = Annotated[int, Meta(ge=0, le=10_000)]


class ScaledFact(Struct, forbid_unknown_fields=True):
    """The value of a fact at the event, times a number; 1 if there is none."""

    fact: Fact
    times: float | UnsetType = UNSET


class Count(Struct, forbid_unknown_fields=True, kw_only=True):
    """An addition to the interface: the number of events at which inner was true, compared with a number."""

    inner: "Condition"
    window_secs: Window | UnsetType = UNSET
    op: Comparison
    value: CountValue


class _OfFact(Struct, forbid_unknown_fields=True, kw_only=True):
    fact: Fact
    where: "Condition | UnsetType" = UNSET
    window_secs: Window | UnsetType = UNSET
    op: Comparison


class Distinct(_OfFact, kw_only=True):
    """An addition to the interface: the number of different values of a fact, where `where` was true."""

    value: CountValue


class Sum(_OfFact, kw_only=True):
    """An addition to the interface: the sum of a fact, where `where` was true."""

    value: float | ScaledFact


class Avg(_OfFact, kw_only=True):
    """An addition to the interface: the mean of a fact, where `where` was true. False if no event counts."""

    value: float | ScaledFact


class Condition(Struct, rename={"not_": "not"}, forbid_unknown_fields=True):
    """A condition: an object with exactly one of these members. Those from `previous` on are additions."""

    leaf: Leaf | UnsetType = UNSET
    ref: Ref | UnsetType = UNSET
    in_relation: InRelation | UnsetType = UNSET
    all: Annotated[list["Condition"], Meta(min_length=1)] | UnsetType = UNSET
    any: Annotated[list["Condition"], Meta(min_length=1)] | UnsetType = UNSET
    not_: "Condition | UnsetType" = UNSET
    once: "Condition | UnsetType" = UNSET
    historically: "Condition | UnsetType" = UNSET
    since: Since | UnsetType = UNSET
    once_within: OnceWithin | UnsetType = UNSET
    historically_for: HistoricallyFor | UnsetType = UNSET
    since_within: SinceWithin | UnsetType = UNSET
    keyed: Keyed | UnsetType = UNSET
    previous: "Condition | UnsetType" = UNSET
    earlier: "Condition | UnsetType" = UNSET
    earlier_within: EarlierWithin | UnsetType = UNSET
    count: Count | UnsetType = UNSET
    distinct: Distinct | UnsetType = UNSET
    sum: Sum | UnsetType = UNSET
    avg: Avg | UnsetType = UNSET


class Memory(Struct):
    """What a condition remembers for each key."""

    per: list[str]
    """The keys, outermost first; none for all events together."""
    entries_max: int
    """The most times, values or parts of a sum."""


class CostEstimate(Struct):
    """What a condition may cost as a rule of its own, roughly."""

    event_ns: int
    """Nanoseconds for each event at which the rule is evaluated."""
    memories: list[Memory]
