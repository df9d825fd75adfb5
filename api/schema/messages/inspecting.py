"""The messages about the inside of a detector: what it holds, and why its rules fire, or not."""

from typing import Annotated, Any, Final, Literal

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
    """Counts the events of the detector, from 1."""
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


STATE_PAGE_MAX: Final = 100
"""The most entries in one page of a list."""


class StateQuery(Struct):
    """Which part of a state is asked for. Without parameters, the answer is an overview in numbers."""

    list: (
        Annotated[Literal["keys", "nodes", "rules"], Meta(extra={"expected": "`keys`, `nodes` or `rules`"})]
        | UnsetType
    ) = UNSET
    """Asks for a page: of the live keys; of the temporal conditions that are remembered; or of the rules,
    with what they cost.
    """
    prefix: Annotated[str, Meta(max_length=1000, extra={"expected": "at most 1000 characters"})] = ""
    """Leaves only keys with a value, or rules with a name, that begins with this text."""
    sort: (
        Annotated[
            Literal["priority", "cost", "seen"], Meta(extra={"expected": "`priority`, `cost` or `seen`"})
        ]
        | UnsetType
    ) = UNSET
    """The order of `list=rules`: by `priority`, or with `cost` the most expensive first. That of `list=keys`:
    one of their own, or with `seen` the most recently seen first, for which every page reads all keys.
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
    """A live key: its values by name, the number of its last event, and how many memories hold something."""

    key: dict[str, Any]
    last_event: int
    memories: int


class StateNode(Struct):
    """A memory, once for all rules whose temporal conditions read it."""

    text: str
    """The first of these conditions. Others may have another window or threshold."""
    per: list[str]
    """The keys around it, outermost first."""
    since_event: int
    """How many events came before its history began."""
    entries: int
    """The number of keys for which something is remembered: estimated beyond about 4 000."""
    bytes: int
    """The estimated bytes of what is remembered, without the keys themselves."""
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
    """How many those are, if there are any."""
    shadow: Literal[True] | UnsetType = UNSET
    evaluated_share: float | UnsetType = UNSET
    """The share of events for which it was evaluated."""
    time_share: float | UnsetType = UNSET
    """Its share of the time that all rules took."""


class CountedSince(Struct):
    """Where the figures of rules begin: at the first event, unless an older version had the detector."""

    event: int
    """The number of events before."""
    clock_ms: float | UnsetType = UNSET
    """The time of the last of them; absent if there was none."""


class State(Struct):
    """What a detector holds, in numbers; or a page of a list; or the tree of a rule."""

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
    """The number of the newest firing in the feed, and how many are kept."""
    samples: int | UnsetType = UNSET
    """At how many events the time of indexed rules was measured."""
    counted_since: CountedSince | UnsetType = UNSET
    """Since when `times_true`, `evaluated_share` and `time_share` of rules are counted."""
    journal: dict[str, Any] | UnsetType = UNSET
    snapshot: dict[str, int] | UnsetType = UNSET
    worker: dict[str, Any] | UnsetType = UNSET
    after: str | UnsetType = UNSET
    """Where the next page begins."""
    ruleId: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    shadow: Literal[True] | UnsetType = UNSET
    fires_ms: float | UnsetType = UNSET
    """When the timed rule fires because time passes, if no event comes. Absent if it does not."""
    node: ExplainedNode | UnsetType = UNSET
