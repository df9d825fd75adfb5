"""The types of the result that compares a rule with its draft."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from api.schema.messages.explanations import ExplainedNode


class Example(Struct):
    """An event at which a rule or its draft fired."""

    number: int
    """Counts the events of the detector, from 1."""
    timestamp_ms: float
    key: dict[str, Any]
    """The values of the keys in both conditions."""
    fields: dict[str, Any]
    cut: Literal[True] | UnsetType = UNSET
    """Long values were cut."""
    rule: ExplainedNode | UnsetType = UNSET
    """The tree of the rule's condition before the event was recorded, if only one fired and it was kept."""
    draft: ExplainedNode | UnsetType = UNSET
    """The tree of the draft's condition, likewise."""


class Examples(Struct):
    """Up to ten events of each kind, the last one first.

    After the first hundred events of a kind, one in a hundred becomes an example. The last five examples with
    conditions are kept, too.
    """

    both: list[Example]
    only_rule: list[Example]
    only_draft: list[Example]


class Difference(Example, kw_only=True):
    """An event at which only one fired, and the trees of both as they were before it was recorded.

    The trees are absent if the conditions are large, and after the first 50 such events of a second.
    """

    fired: Literal["only_rule", "only_draft"]


class ComparisonQuery(Struct):
    """Where the list of differences continues."""

    after: Annotated[int, Meta(ge=0, extra={"expected": "a whole number"})] | UnsetType = UNSET
    """Watch the differences, and return those after the event with this number."""


class Comparison(Struct):
    """At how many events a rule and its draft fired together, and at how many each fired alone."""

    ruleId: str
    draftId: str
    since_event: int
    """How many events came before the comparison began."""
    events: int
    """How many events were compared."""
    both: int
    only_rule: int
    only_draft: int
    examples: Examples
    since_ms: float | UnsetType = UNSET
    """The detector's clock when the comparison began."""
    young_until_ms: float | UnsetType | None = UNSET
    """Until when the two may differ because one has seen fewer events; `null` without a bound, absent if
    both have seen the same.
    """
    differences: list[Difference] | UnsetType = UNSET
    """With `after`: where only one fired, oldest first."""
