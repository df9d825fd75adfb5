"""The types of request bodies and results: for decoding, validation and the OpenAPI document."""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from api.schema.conditions import Condition, CostEstimate

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        pattern="^[\t\n -~\u00a0-\U0010ffff]*$",
        description="1 to 255 characters, none of them a control character other than tab and newline.",
        extra={"expected": "1 to 255 characters without control characters other than tab and newline"},
    ),
]
ConditionSource = Annotated[
    str,
    Meta(description="A condition in the text language, or the JSON of a Condition object, as a string."),
]
Shadow = Annotated[
    bool, Meta(description="An addition. A shadow rule is evaluated and counted, and yields no action.")
]
PAGE_MAX: Final = 1000
"""Detectors in one page of their list."""


class NewDetector(Struct, forbid_unknown_fields=True):
    """The body that creates a detector."""

    name: Name


class NewRule(Struct, forbid_unknown_fields=True):
    """The body that creates a rule."""

    condition: ConditionSource
    name: Name
    notify: bool = False
    shadow: Shadow = False
    draftOf: str | UnsetType = UNSET
    """The id of the rule that this is a draft of: their firings are compared."""


class RuleChange(Struct, forbid_unknown_fields=True):
    """The body that changes a rule. Absent members keep their values."""

    condition: ConditionSource | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    name: Name | UnsetType = UNSET
    notify: bool | UnsetType = UNSET
    shadow: Shadow | UnsetType = UNSET


class ConditionToParse(Struct, forbid_unknown_fields=True):
    """The body of a parse: a condition as text, as JSON in a string, or as a Condition object."""

    condition: Annotated[
        Raw,
        Meta(extra_json_schema={"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/Condition"}]}),
    ]


class Identified(Struct):
    """The id of what was created, deleted or revoked."""

    id: str


class Token(Struct):
    """A new token. `token` is the secret and is shown only here; `hint` is its last four characters."""

    id: str
    token: str
    hint: str


class NewToken(Struct, forbid_unknown_fields=True):
    """The body that creates a token with a name."""

    name: Name


class ListedToken(Struct):
    """A token as lists show it. `used_ms` is when it was last used, to about a minute; null if not known."""

    id: str
    hint: str
    name: str
    created_ms: int | None
    used_ms: int | None


class Tokens(Struct):
    """The tokens, in order of creation."""

    tokens: list[ListedToken]


class Detector(Struct):
    """A detector as lists show it."""

    id: str
    name: str


class DetectorsQuery(Struct):
    """The page of a list of detectors. Without either parameter, the list is whole."""

    limit: (
        Annotated[int, Meta(ge=1, le=PAGE_MAX, extra={"expected": f"a whole number from 1 to {PAGE_MAX}"})]
        | UnsetType
    ) = UNSET
    """The maximum number of detectors; 1000 if only `after` is given."""
    after: (
        Annotated[str, Meta(pattern="^[0-9a-f]{32}$", extra={"expected": "the id of a detector"})] | UnsetType
    ) = UNSET
    """Only detectors created after this one, the last of the previous page."""


YesOrNo = Annotated[Literal["true", "false"], Meta(extra={"expected": "`true` or `false`"})]


class BatchQuery(Struct):
    """What a batch leaves out."""

    dry_run: YesOrNo | UnsetType = UNSET
    """`true` returns what the answer would be, and records nothing. Evictions are not predicted, and an
    Idempotency-Key is ignored.
    """


class EvaluateQuery(BatchQuery):
    """What an evaluation adds to its answer, or leaves out."""

    explain: YesOrNo | UnsetType = UNSET
    """`true` adds `node` to each action: the explanation of its rule."""


class Rule(Struct):
    """A rule. Actions are listed in order of priority, the lowest number first."""

    id: str
    condition: Condition
    detectorId: str
    enabled: bool
    name: str
    notify: bool
    priority: Annotated[int, Meta(ge=1)]
    shadow: Literal[True] | UnsetType = UNSET
    """Absent from other rules."""
    draftOf: str | UnsetType = UNSET
    """The id of the rule that this is a draft of."""


class ShownRule(Rule, kw_only=True):
    """A rule with its condition as text: the canonical one, and as it was written, comments included."""

    text: str
    source: str


class Rules(Struct):
    """The rules of a detector, by priority."""

    rules: list[Rule]


class Action(Struct):
    """The action of a rule whose condition is true; `type` is `notify` if the rule's `notify` is true."""

    type: Literal["match", "notify"]
    ruleId: str
    name: str
    priority: int
    notify: bool
    node: "ExplainedNode | UnsetType" = UNSET
    """Why the rule fires, with `explain=true`."""


class Actions(Struct):
    """The actions of one event, by priority."""

    actions: list[Action]


class EntryOfReply(Struct):
    """A code of at least 1000 and a message."""

    code: Annotated[int, Meta(ge=1000)]
    message: str


class EventResult(Struct):
    """The result of one event of a batch. A refused event has no actions, and `errors` say why."""

    actions: list[Action]
    errors: list[EntryOfReply] | UnsetType = UNSET
    messages: list[EntryOfReply] | UnsetType = UNSET


class BatchResults(Struct):
    """The results of a batch, one for each event in order."""

    results: list[EventResult]


class ExplainedNode(Struct, omit_defaults=True):
    """A condition at the event that is explained."""

    text: str
    """The canonical text."""
    verdict: bool
    nodes: list["ExplainedNode"] | UnsetType = UNSET
    """Those of the conditions inside."""
    values: dict[str, Any] | UnsetType = UNSET
    """What was looked up, by name; a missing value is absent."""
    key: dict[str, Any] | UnsetType = UNSET
    """The slice of a `keyed`: its key and those around it."""
    witness_ms: float | UnsetType = UNSET
    """The time of the event that settles a temporal condition."""
    until_ms: float | UnsetType = UNSET
    """Until when the verdict stays if nothing else happens."""
    found: float | UnsetType = UNSET
    """What `count`, `distinct`, `sum` or `avg` found. Of the first two, no more than the comparison needs."""
    note: str | UnsetType = UNSET
    """What is worth knowing, in words."""


class ExplainedRule(Struct, omit_defaults=True):
    """A rule at the event that is explained."""

    ruleId: str
    name: str
    verdict: bool
    """Whether the rule would fire."""
    node: ExplainedNode
    shadow: Literal[True] | UnsetType = UNSET
    why_not: list[str] | UnsetType = UNSET
    """The smallest set of predicates of which the verdict turns; absent if none turns it."""


class Explanation(Struct):
    """What an event would do, by priority."""

    rules: list[ExplainedRule]


class TimelineQuery(Struct):
    """The key and the place on a timeline."""

    key: Annotated[str, Meta(extra={"expected": "a JSON object of strings, numbers and booleans"})] = "{}"
    """Only events with these values, as a JSON object: `{"user": "ada"}`."""
    after: Annotated[int, Meta(ge=0, extra={"expected": "a whole number"})] = 0
    """Only events behind the one with this number."""


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


class ParsedCondition(Struct):
    """A condition as an object and as canonical text, and what it may cost."""

    condition: Condition
    text: str
    estimate: CostEstimate


class Alive(Struct):
    """The process is alive."""

    alive: Literal[True]


class Ready(Struct):
    """Requests are served. `amiss`, shown only with a token, lists problems that do not prevent this."""

    ready: Literal[True]
    # Its sentences name detectors and files, so they are not shown to everyone.
    amiss: list[str] | UnsetType = UNSET


class Failure(Struct):
    """The response to a failed request. All errors are of one kind, and the first sets the status."""

    success: Literal[False]
    errors: Annotated[list[EntryOfReply], Meta(min_length=1)]
    messages: list[EntryOfReply]
    result: dict[str, Any]
