"""The messages that explain why a rule fires: at an event, at the last ones, and compared with a draft."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType


class ExplainedNode(Struct):
    """A condition at an event; in the state of a detector, at an event now that has only the rule's keys."""

    text: str
    """The canonical text."""
    verdict: bool
    nodes: list["ExplainedNode"] | UnsetType = UNSET
    """The nodes of the conditions inside."""
    values: dict[str, Any] | UnsetType = UNSET
    """What was looked up, by name; a missing value is absent."""
    key: dict[str, Any] | UnsetType = UNSET
    """The slice of a `keyed`: its key and those around it."""
    witness_ms: float | UnsetType = UNSET
    """The time of the event that settles a temporal condition."""
    until_ms: float | UnsetType = UNSET
    """Until when the verdict stays if nothing else happens."""
    found: float | dict[str, Any] | UnsetType = UNSET
    """What an aggregate found. Where it counts, no more than the comparison needs. Of a comparison of terms,
    their values by their texts.
    Absent past the range of a double; `note` says so then.
    """
    since_ms: float | UnsetType = UNSET
    """Only in the state: all later events so far had this verdict, and perhaps earlier ones, too."""
    note: str | UnsetType = UNSET
    """A remark, such as that a value has another type than the one it is compared with."""


class ExplainedRule(Struct):
    """A rule at the event that is explained."""

    ruleId: str
    name: str
    verdict: bool
    """Whether the rule would fire."""
    node: ExplainedNode
    shadow: Literal[True] | UnsetType = UNSET
    why_not: list[str] | UnsetType = UNSET
    """The smallest set of predicates that an event could change to turn the verdict; absent if none does."""
    fires_ms: float | UnsetType = UNSET
    """When the timed rule fires by time for the event's keys, if the event comes and then nothing else does.
    Absent if it does not."""


class Explanation(Struct):
    """The explanations of rules at an event, by priority."""

    rules: list[ExplainedRule]


class TimelineQuery(Struct):
    """Which events of a timeline are asked for."""

    key: Annotated[str, Meta(extra={"expected": "a JSON object of strings, numbers and booleans"})] = "{}"
    """Only events with these values, as a JSON object: `{"user": "ada"}`."""
    after: Annotated[int, Meta(ge=0, extra={"expected": "a whole number"})] = 0
    """Only events after the one with this number."""


class Moment(Struct):
    """An event on a timeline. `verdicts` has a value for each row: null if the event has no key for it."""

    number: int
    time_ms: float
    verdict: bool
    verdicts: list[bool | None]
    key: dict[str, Any]


class Timeline(Struct):
    """A rule at the last events. `rows` are its temporal conditions, outer ones first."""

    ruleId: str
    text: str
    rows: list[str]
    moments: list[Moment]


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
