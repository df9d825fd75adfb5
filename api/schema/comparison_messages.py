"""The types of the result that compares a rule with its draft."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from api.schema.messages import ExplainedNode


class Example(Struct):
    """An event at which a rule or its draft fired."""

    number: Annotated[int, Meta(description="Counts the events of the detector, from 1.")]
    timestamp_ms: float
    key: Annotated[dict[str, Any], Meta(description="The values of the keys in both conditions.")]
    fields: dict[str, Any]
    cut: Annotated[Literal[True], Meta(description="Long values were cut.")] | UnsetType = UNSET


class Examples(Struct):
    """Up to ten events of each kind since the activation, the last one first.

    Behind the first hundred of a kind, one in a hundred becomes an example.
    """

    both: list[Example]
    only_rule: list[Example]
    only_draft: list[Example]


class Difference(Struct):
    """An event at which only one fired, and the trees of both as they were before it was recorded.

    The trees are absent if the conditions are large, or behind the first 50 such events of a second.
    """

    fired: Literal["only_rule", "only_draft"]
    number: int
    timestamp_ms: float
    key: dict[str, Any]
    fields: dict[str, Any]
    cut: Literal[True] | UnsetType = UNSET
    rule: Annotated[ExplainedNode, Meta(description="The rule's condition.")] | UnsetType = UNSET
    draft: Annotated[ExplainedNode, Meta(description="The draft's condition.")] | UnsetType = UNSET


class ComparisonQuery(Struct):
    """Where on the list of differences to go on."""

    after: (
        Annotated[
            int,
            Meta(
                ge=0,
                description="Watch the differences, and tell those behind the event with this number.",
                extra={"expected": "a whole number"},
            ),
        ]
        | UnsetType
    ) = UNSET


class Comparison(Struct):
    """At how many events a rule and its draft fired together, and at how many each fired alone."""

    ruleId: str  # noqa: N815 -- spelt as in actions
    draftId: str  # noqa: N815
    since_event: Annotated[int, Meta(description="How many events came before the comparison began.")]
    events: Annotated[int, Meta(description="How many events were compared.")]
    both: int
    only_rule: int
    only_draft: int
    examples: Examples
    since_ms: (
        Annotated[float, Meta(description="The detector's clock when the comparison began.")] | UnsetType
    ) = UNSET
    young_until_ms: (
        Annotated[
            float | None,
            Meta(
                description="Until when the draft may differ because it has seen fewer events; `null` if it "
                "looks back without a window, absent if that does not matter."
            ),
        ]
        | UnsetType
    ) = UNSET
    differences: (
        Annotated[list[Difference], Meta(description="With `after`: where only one fired, oldest first.")]
        | UnsetType
    ) = UNSET
