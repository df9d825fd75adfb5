"""The messages about rules and their conditions."""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from api.schema.messages.catalogue import Name, PageSize, YesOrNo
from engine.evaluation.rules import (
    DESCRIPTION_CHARS_MAX,
    EVERY_BY_CHARS_MAX,
    EVERY_BY_MAX,
    EVERY_SECS_MAX,
    LABEL_CHARS_MAX,
    LABEL_NAME_CHARS_MAX,
    LABELS_MAX,
)

Condition = Annotated[Any, Meta(extra_json_schema={"$ref": "#/components/schemas/Condition"})]
"""Its schema in the OpenAPI document comes from `condition_schemas`."""


class Memory(Struct):
    """The state of a condition for each key."""

    per: list[str]
    """The keys, outermost first; empty if all events share the state."""
    entries_max: int
    """The maximum number of times, values or parts of a sum."""


class CostEstimate(Struct):
    """A rough estimate of the cost of a condition as a rule."""

    event_ns: int
    """Nanoseconds for each event at which the rule is evaluated."""
    memories: list[Memory]


ConditionSource = Annotated[
    str, Meta(description="A condition in the text language, or the JSON of a Condition object, as a string.")
]
Shadow = Annotated[
    bool, Meta(description="An addition. A shadow rule is evaluated and counted, but causes no actions.")
]
KeepHistory = Annotated[
    Literal["keep"],
    Meta(
        description="An addition. The history of a different condition restarts only where it has nothing in "
        "common with the old one.",
        extra={"expected": "`keep`"},
    ),
]
Description = Annotated[
    str,
    Meta(
        max_length=DESCRIPTION_CHARS_MAX,
        description=f"An addition. Text for people, of at most {DESCRIPTION_CHARS_MAX} characters.",
        extra={"expected": f"at most {DESCRIPTION_CHARS_MAX} characters"},
    ),
]
_LabelName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LABEL_NAME_CHARS_MAX,
        extra={"expected": f"1 to {LABEL_NAME_CHARS_MAX} characters"},
    ),
]
_LabelText = Annotated[
    str, Meta(max_length=LABEL_CHARS_MAX, extra={"expected": f"at most {LABEL_CHARS_MAX} characters"})
]
Labels = Annotated[
    dict[_LabelName, _LabelText | int | float | bool],
    Meta(
        max_length=LABELS_MAX,
        description=f"An addition. At most {LABELS_MAX} names with strings, numbers or booleans, which the "
        "actions of the rule repeat.",
    ),
]
Timed = Annotated[
    bool, Meta(description="An addition. The rule also fires when time alone makes its condition true.")
]
_UP_TO_YEARS: Final = Meta(
    ge=0, le=EVERY_SECS_MAX, extra={"expected": f"a number from 0 to {EVERY_SECS_MAX}"}
)
EverySecs = Annotated[
    Annotated[int, _UP_TO_YEARS] | Annotated[float, _UP_TO_YEARS],
    Meta(
        description="An addition. The rule acts at most once in so many seconds for the same values of "
        "`every_by`; `suppressed` of the next action says how many actions were suppressed. 0, the default: "
        "it acts whenever its condition is true."
    ),
]
_KeyName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=EVERY_BY_CHARS_MAX,
        extra={"expected": f"1 to {EVERY_BY_CHARS_MAX} characters"},
    ),
]
EveryBy = Annotated[
    list[_KeyName],
    Meta(
        max_length=EVERY_BY_MAX,
        description=f"An addition. At most {EVERY_BY_MAX} names of facts, for `every_secs`; an empty list "
        "counts all actions of the rule together. Default: the rule's keys, the names of those `per` "
        "in its condition that are not inside a temporal member.",
    ),
]


class NewRule(Struct, forbid_unknown_fields=True):
    """The body that creates a rule."""

    condition: ConditionSource
    name: Name
    notify: bool = False
    shadow: Shadow = False
    draftOf: str | UnsetType = UNSET
    """The id of the rule of which this is a draft: their firings are compared."""
    description: Description = ""
    labels: Labels = {}
    timed: Timed = False
    every_secs: EverySecs = 0
    every_by: EveryBy | UnsetType = UNSET


class RuleToPut(Struct, forbid_unknown_fields=True):
    """A rule to create or change, by name. Absent members get their defaults."""

    condition: ConditionSource
    name: Name
    notify: bool = False
    enabled: bool = True
    shadow: Shadow = False
    draftOf: str | UnsetType = UNSET
    """The name of the rule of which this is a draft."""
    description: Description = ""
    labels: Labels = {}
    timed: Timed = False
    every_secs: EverySecs = 0
    every_by: EveryBy | UnsetType = UNSET
    history: KeepHistory | UnsetType = UNSET


class RulesToPut(Struct, forbid_unknown_fields=True):
    """The body that creates and changes many rules as one change. Names must be unique."""

    rules: list[RuleToPut]
    prune: bool = False
    """Whether rules with other names are removed."""
    dryRun: bool = False
    """Whether only to return the result, without any change."""
    details: bool = False
    """Whether the result also shows how each changed rule differs."""


class RuleDifference(Struct):
    """How a changed rule differs from what it was."""

    name: str
    members: list[str]
    """The members that differ; `text` if only the writing of the condition differs."""
    history: Literal["kept", "partly kept", "begins anew"]
    before: str | UnsetType = UNSET
    """The old condition as canonical text, if it differs. Omitted, with `after` and `begins_anew`, beyond 16
    Mi characters in all."""
    after: str | UnsetType = UNSET
    begins_anew: list[str] | UnsetType = UNSET
    """If the history is partly kept, the parts of the condition whose history restarts."""


class RulesChanged(Struct):
    """The names of the rules that were created, changed, removed, and left unchanged."""

    created: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: list[str]
    details: list[RuleDifference] | UnsetType = UNSET
    """How each changed rule differs, with `details`."""


class RulesQuery(Struct):
    """The page of a list of rules. Without any parameter, the whole list."""

    limit: PageSize | UnsetType = UNSET
    """The maximum number of rules; 1000 if only others are given. A page also ends at about 1 MiB."""
    after: Annotated[int, Meta(ge=0, le=2**63 - 1, extra={"expected": "a priority"})] | UnsetType = UNSET
    """Only rules after this priority, that of the last rule on the previous page."""
    source: YesOrNo | UnsetType = UNSET
    """Whether each rule of the page also has its condition as text: `text` and `source`."""
    name: Annotated[str, Meta(min_length=1, extra={"expected": "a name"})] | UnsetType = UNSET
    """Only rules of this name."""


class RuleChange(Struct, forbid_unknown_fields=True):
    """The body that changes a rule. Absent members keep their values."""

    condition: ConditionSource | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    name: Name | UnsetType = UNSET
    notify: bool | UnsetType = UNSET
    shadow: Shadow | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    """An empty text removes it."""
    labels: Labels | UnsetType = UNSET
    """The labels, which replace all old ones; an empty object removes them."""
    timed: Timed | UnsetType = UNSET
    every_secs: EverySecs | UnsetType = UNSET
    """0 also removes `every_by`."""
    every_by: EveryBy | UnsetType = UNSET
    history: KeepHistory | UnsetType = UNSET


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
    """Only in shadow rules."""
    draftOf: str | UnsetType = UNSET
    """The id of the rule of which this is a draft."""
    description: Description | UnsetType = UNSET
    labels: Labels | UnsetType = UNSET
    timed: Literal[True] | UnsetType = UNSET
    every_secs: EverySecs | UnsetType = UNSET
    every_by: EveryBy | UnsetType = UNSET


class ListedRule(Rule, kw_only=True):
    """A rule in a list. With `source=true`, it has its condition as text, like a shown rule."""

    text: str | UnsetType = UNSET
    source: str | UnsetType = UNSET


class ShownRule(Rule, kw_only=True):
    """A rule with its condition as text: canonical, and as written, comments included."""

    text: str
    source: str


class VersionOfRule(Rule, kw_only=True):
    """A rule with its condition as written, without the rule of which it was a draft."""

    source: str


class TokenOfChange(Struct):
    """The token that made a change; the id of the bootstrap token is empty."""

    id: str
    name: str


class Version(Struct):
    """A version of a rule, numbered from 1."""

    version: Annotated[int, Meta(ge=1)]
    time_ms: int | None
    """When it was made; null if an earlier release made it."""
    token: TokenOfChange | None
    """The token that made it; null if unknown."""
    rule: VersionOfRule


class Versions(Struct):
    """The versions of a rule, newest first."""

    versions: list[Version]


class Rules(Struct):
    """The rules of a detector, by priority."""

    rules: list[ListedRule]


class ConditionToParse(Struct, forbid_unknown_fields=True):
    """The body of a parse: a condition as text, as JSON in a string, or as a Condition object."""

    condition: Annotated[
        Raw,
        Meta(extra_json_schema={"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/Condition"}]}),
    ]


class ParsedCondition(Struct):
    """A condition as an object and as canonical text, with an estimate of its cost."""

    condition: Condition
    text: str
    estimate: CostEstimate
