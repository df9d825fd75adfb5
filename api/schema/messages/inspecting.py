"""The messages about the inside of a detector: its state, and why its rules fire, or not."""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType


class ExplainedNode(Struct):
    """A condition at an event; in the state of a detector, at a current event with only the rule's keys."""

    text: str
    """The canonical text."""
    verdict: bool
    nodes: list["ExplainedNode"] | UnsetType = UNSET
    """The nodes of the conditions inside."""
    values: dict[str, Any] | UnsetType = UNSET
    """The values that were looked up, by name; missing values are absent."""
    key: dict[str, Any] | UnsetType = UNSET
    """The slice of a `keyed`: its key and those around it."""
    witness_ms: float | UnsetType = UNSET
    """The time of the event that settles a temporal condition."""
    until_ms: float | UnsetType = UNSET
    """Until when the verdict holds if nothing else happens."""
    found: float | dict[str, Any] | UnsetType = UNSET
    """The value of an aggregate; a count only as far as the comparison needs it. For a comparison of terms,
    their values by their texts.
    Absent beyond the range of a double, which `note` then says.
    """
    since_ms: float | UnsetType = UNSET
    """Only in the state: all later events so far had this verdict, perhaps also earlier ones."""
    note: str | UnsetType = UNSET
    """A remark, for example that the compared values have different types."""


class ExplainedRule(Struct):
    """A rule at the explained event."""

    ruleId: str
    name: str
    verdict: bool
    """Whether the rule would fire."""
    node: ExplainedNode
    shadow: Literal[True] | UnsetType = UNSET
    why_not: list[str] | UnsetType = UNSET
    """The smallest set of predicates whose change would flip the verdict; absent if there is none."""
    fires_ms: float | UnsetType = UNSET
    """When the timed rule fires by time for the event's keys, if only this event happens. Absent if it does
    not."""


class Explanation(Struct):
    """The explanations of rules at an event, by priority."""

    rules: list[ExplainedRule]


class TimelineQuery(Struct):
    """The requested events of a timeline."""

    key: Annotated[str, Meta(extra={"expected": "a JSON object of strings, numbers and booleans"})] = "{}"
    """Only events with these values, as a JSON object: `{"user": "ada"}`."""
    after: Annotated[int, Meta(ge=0, extra={"expected": "a whole number"})] = 0
    """Only events after the one with this number."""


class Moment(Struct):
    """An event on a timeline. `verdicts` has a value for each row: null if the event has no key for it."""

    number: int
    """Counts the events of the detector, from 1."""
    time_ms: float
    verdict: bool
    verdicts: list[bool | None]
    key: dict[str, Any]


class Timeline(Struct):
    """A rule at the latest events. `rows` are its temporal conditions, outer ones first."""

    ruleId: str
    text: str
    rows: list[str]
    moments: list[Moment]


class Example(Struct):
    """An event at which a rule or its draft fired."""

    number: int
    """The number of the event in the detector, from 1."""
    timestamp_ms: float
    key: dict[str, Any]
    """The values of the keys in both conditions."""
    fields: dict[str, Any]
    cut: Literal[True] | UnsetType = UNSET
    """Long values were cut."""
    rule: ExplainedNode | UnsetType = UNSET
    """The tree of the rule's condition before the event was recorded, if only one fired and it was stored."""
    draft: ExplainedNode | UnsetType = UNSET
    """The tree of the draft's condition, likewise."""


class Examples(Struct):
    """Up to ten events of each kind, the last one first.

    After the first hundred events of a kind, one in a hundred becomes an example. The last five examples with
    conditions are stored, too.
    """

    both: list[Example]
    only_rule: list[Example]
    only_draft: list[Example]


class Difference(Example, kw_only=True):
    """An event at which only one fired, with the trees of both before it was recorded.

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
    """The number of events before the comparison began."""
    events: int
    """The number of compared events."""
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
    """With `after`: the events at which only one fired, oldest first."""


STATE_PAGE_MAX: Final = 100
"""The maximum number of entries in one page of a list."""


class StateQuery(Struct):
    """The requested part of a state. Without parameters, the answer is an overview in numbers."""

    list: (
        Annotated[Literal["keys", "nodes", "rules"], Meta(extra={"expected": "`keys`, `nodes` or `rules`"})]
        | UnsetType
    ) = UNSET
    """Requests a page of the live keys, of the stored temporal conditions, or of the rules with their
    costs.
    """
    prefix: Annotated[str, Meta(max_length=1000, extra={"expected": "at most 1000 characters"})] = ""
    """Only keys with a value, or rules with a name, that begins with this text."""
    sort: (
        Annotated[
            Literal["priority", "cost", "seen"], Meta(extra={"expected": "`priority`, `cost` or `seen`"})
        ]
        | UnsetType
    ) = UNSET
    """The order of `list=rules`: by `priority`, or with `cost`, most expensive first. That of
    `list=keys`: an internal one, or with `seen`, most recently seen first; every page then reads all keys.
    """
    limit: Annotated[
        int, Meta(ge=1, le=STATE_PAGE_MAX, extra={"expected": f"a whole number from 1 to {STATE_PAGE_MAX}"})
    ] = STATE_PAGE_MAX
    """The maximum number of entries."""
    after: (
        Annotated[
            str, Meta(pattern="^[0-9]{1,18}(-[0-9]{1,9})?$", extra={"expected": "the `after` of a page"})
        ]
        | UnsetType
    ) = UNSET
    """The `after` of the previous page."""
    rule: Annotated[str, Meta(extra={"expected": "the id of a rule"})] | UnsetType = UNSET
    """The standing verdict of the rule with this id, as a tree."""
    true: Annotated[Literal["true"], Meta(extra={"expected": "`true`"})] | UnsetType = UNSET
    """With `rule` and `list=keys`: a page of the keys for which the rule is true now."""
    key: Annotated[str, Meta(extra={"expected": "a JSON object of strings, numbers and booleans"})] = "{}"
    """With `rule`: the values of its keys, as a JSON object: `{"user": "ada"}`."""


class StateKey(Struct):
    """A live key: its values by name, the number of its last event, and how many memories it occupies."""

    key: dict[str, Any]
    last_event: int
    memories: int


class StateNode(Struct):
    """A memory, shared by all rules whose temporal conditions read it."""

    text: str
    """The first of these conditions. Others may have another window or threshold."""
    per: list[str]
    """The keys around it, outermost first."""
    since_event: int
    """The number of events before its history began."""
    entries: int
    """The number of keys with entries in it; an estimate beyond about 4 000."""
    bytes: int
    """Its estimated bytes, without the keys themselves."""
    uses: int
    """How many temporal conditions of rules read it."""
    ruleIds: list[str]
    """At most 20 of these rules."""


class StateRule(Struct):
    """A rule, with how often it fired and what it cost, counted since `counted_since`."""

    ruleId: str
    name: str
    priority: int
    enabled: bool
    since_event: int
    times_true: int
    """How often it fired, without the actions that `every_secs` held back."""
    held_back: int | UnsetType = UNSET
    """The number of these actions, if there are any."""
    shadow: Literal[True] | UnsetType = UNSET
    evaluated_share: float | UnsetType = UNSET
    """The share of events at which it was evaluated."""
    time_share: float | UnsetType = UNSET
    """Its share of the evaluation time of all rules."""


class CountedSince(Struct):
    """Where the figures of rules begin: at the first event, unless an older version created the detector."""

    event: int
    """The number of events before that."""
    clock_ms: float | UnsetType = UNSET
    """The time of the last of them; absent if there was none."""


class State(Struct):
    """The state of a detector in numbers; or a page of a list; or the tree of a rule."""

    clock_ms: float | UnsetType = UNSET
    """Absent before the first event."""
    events: int | UnsetType = UNSET
    rules: dict[str, int] | list[StateRule] | UnsetType = UNSET
    nodes: dict[str, int] | list[StateNode] | UnsetType = UNSET
    indexed: bool | UnsetType = UNSET
    """Whether an index finds the rules that an event concerns; otherwise all rules are evaluated."""
    keys: dict[str, Any] | list[StateKey] | UnsetType = UNSET
    bytes: dict[str, int] | UnsetType = UNSET
    relations: dict[str, Any] | UnsetType = UNSET
    """The stored relations, the first ones with tuples, arity and bytes. They count apart from keys."""
    feed: dict[str, int] | UnsetType = UNSET
    """The number of the newest firing in the feed, and how many are stored."""
    samples: int | UnsetType = UNSET
    """The number of events at which the time of indexed rules was measured."""
    counted_since: CountedSince | UnsetType = UNSET
    """When the counts for `times_true`, `evaluated_share` and `time_share` of rules began."""
    journal: dict[str, Any] | UnsetType = UNSET
    snapshot: dict[str, int] | UnsetType = UNSET
    worker: dict[str, Any] | UnsetType = UNSET
    after: str | UnsetType = UNSET
    """The `after` of the next page."""
    ruleId: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    shadow: Literal[True] | UnsetType = UNSET
    fires_ms: float | UnsetType = UNSET
    """When the timed rule fires because time passes, if no event happens. Absent if it does not."""
    node: ExplainedNode | UnsetType = UNSET
