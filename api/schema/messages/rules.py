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
"""The OpenAPI document has the schema, which `condition_schemas` makes."""


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


ConditionSource = Annotated[
    str, Meta(description="A condition in the text language, or the JSON of a Condition object, as a string.")
]
Shadow = Annotated[
    bool, Meta(description="An addition. A shadow rule is evaluated and counted, and yields no action.")
]
KeepHistory = Annotated[
    Literal["keep"],
    Meta(
        description="An addition. A different condition begins anew only where it has nothing in common with "
        "the old one.",
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
        description="An addition. At most once in so many seconds, the rule acts for the same values of "
        "`every_by`; the next action says in `suppressed` how many were held back. 0, the default: it acts "
        "whenever its condition is true."
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
        "takes all actions of the rule together. Default: the rule's keys, which are the names of the `per` "
        "in its condition that stand under no temporal member.",
    ),
]


class NewRule(Struct, forbid_unknown_fields=True):
    """The body that creates a rule."""

    condition: ConditionSource
    name: Name
    notify: bool = False
    shadow: Shadow = False
    draftOf: str | UnsetType = UNSET
    """The id of the rule that this is a draft of: their firings are compared."""
    description: Description = ""
    labels: Labels = {}
    timed: Timed = False
    every_secs: EverySecs = 0
    every_by: EveryBy | UnsetType = UNSET


class RuleToPut(Struct, forbid_unknown_fields=True):
    """What the rule of a name is to be. Members that are left out have their defaults."""

    condition: ConditionSource
    name: Name
    notify: bool = False
    enabled: bool = True
    shadow: Shadow = False
    draftOf: str | UnsetType = UNSET
    """The name of the rule that this is a draft of."""
    description: Description = ""
    labels: Labels = {}
    timed: Timed = False
    every_secs: EverySecs = 0
    every_by: EveryBy | UnsetType = UNSET
    history: KeepHistory | UnsetType = UNSET


class RulesToPut(Struct, forbid_unknown_fields=True):
    """The body that changes many rules as one change. No two have one name."""

    rules: list[RuleToPut]
    prune: bool = False
    """Whether rules with other names are removed."""
    dryRun: bool = False
    """Whether only the result is returned, and nothing changed."""
    details: bool = False
    """Whether the result also has how each changed rule differs."""


class RuleDifference(Struct):
    """How a changed rule differs from what it was."""

    name: str
    members: list[str]
    """The members that differ; `text` if the condition is only written in another way."""
    history: Literal["kept", "partly kept", "begins anew"]
    before: str | UnsetType = UNSET
    """The condition before as canonical text, if it is a different one. Past 16 Mi characters in all, it is
    left out, with `after` and `begins_anew`."""
    after: str | UnsetType = UNSET
    begins_anew: list[str] | UnsetType = UNSET
    """Of a history that is partly kept, the parts of the condition that begin anew."""


class RulesChanged(Struct):
    """The names of the rules that a change of many adds, changes, removes, and leaves as they are."""

    created: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: list[str]
    details: list[RuleDifference] | UnsetType = UNSET
    """How each changed rule differs, if `details` was asked for."""


class RulesQuery(Struct):
    """The page of a list of rules. Without any parameter, the list is whole."""

    limit: PageSize | UnsetType = UNSET
    """The maximum number of rules; 1000 if only others are given. A page also ends at about 1 MiB."""
    after: Annotated[int, Meta(ge=0, le=2**63 - 1, extra={"expected": "a priority"})] | UnsetType = UNSET
    """Only rules after this priority, that of the last rule on the previous page."""
    source: YesOrNo | UnsetType = UNSET
    """Whether each rule of the page has its condition as text, too: `text` and `source`."""
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
    """They replace all labels; an empty object removes them."""
    timed: Timed | UnsetType = UNSET
    every_secs: EverySecs | UnsetType = UNSET
    """0 removes `every_by`, too."""
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
    """The id of the rule that this is a draft of."""
    description: Description | UnsetType = UNSET
    labels: Labels | UnsetType = UNSET
    timed: Literal[True] | UnsetType = UNSET
    every_secs: EverySecs | UnsetType = UNSET
    every_by: EveryBy | UnsetType = UNSET


class ListedRule(Rule, kw_only=True):
    """A rule of a list. With `source=true`, it has its condition as text, as a rule that is shown."""

    text: str | UnsetType = UNSET
    source: str | UnsetType = UNSET


class ShownRule(Rule, kw_only=True):
    """A rule with its condition as text: the canonical one, and as it was written, comments included."""

    text: str
    source: str


class VersionOfRule(Rule, kw_only=True):
    """A rule with its condition as it was written. It does not say what the rule was a draft of."""

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
    """Whose token made it; null if it is not known."""
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
    """A condition as an object and as canonical text, and what it may cost."""

    condition: Condition
    text: str
    estimate: CostEstimate
