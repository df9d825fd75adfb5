"""The service's answers as types, and as an error. Members that a newer service adds are ignored."""

from typing import Any, Final

import msgspec

_REFUSALS: Final = range(400, 500)
_PASSING: Final = frozenset({408, 425, 429})
"""The temporary ones of these statuses."""


class Entry(msgspec.Struct, frozen=True):
    """One error or message."""

    code: int
    message: str


class ServiceError(Exception):
    """The service refused, or did not answer.

    `status` is the HTTP status and `code` the code of the first of `entries`; both are None without an answer
    from the service. `in_doubt` means that the request may have been carried out.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        entries: tuple[Entry, ...] = (),
        in_doubt: bool = False,
        sent: bool = True,
        retry_after_s: float = 1.0,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.entries = entries
        self.in_doubt = in_doubt
        self.sent = sent
        """False if no connection was made."""
        self.retry_after_s = retry_after_s

    @property
    def is_refusal(self) -> bool:
        """Whether the service would answer the same again."""
        return self.status in _REFUSALS and self.status not in _PASSING

    @property
    def code(self) -> int | None:
        """The code of the first error; None without an answer from the service."""
        return self.entries[0].code if self.entries else None


class Envelope(msgspec.Struct, frozen=True):
    """The envelope of every answer."""

    success: bool
    errors: list[Entry]
    messages: list[Entry]
    result: msgspec.Raw


class Identified(msgspec.Struct, frozen=True, omit_defaults=True):
    """The id of a created, deleted or revoked object; for a new rule, also the messages about it."""

    id: str
    messages: list[Entry] = []


class Detector(msgspec.Struct, frozen=True):
    """A detector, by id and name."""

    id: str
    name: str


class Token(msgspec.Struct, frozen=True):
    """A new token. `token` is the secret; `hint` is its last four characters."""

    id: str
    token: str
    hint: str


class ListedToken(msgspec.Struct, frozen=True):
    """A token without its secret. Unknown times and missing bounds are None."""

    id: str
    hint: str
    name: str
    created_ms: int | None
    used_ms: int | None
    scopes: list[str] | None = None
    detectors: list[str] | None = None
    """The ids of the detectors that it may use."""
    expires_ms: int | None = None
    events_per_s: float | None = None


class OwnToken(msgspec.Struct, frozen=True):
    """The client's own token: what it may do. A token from the service's settings has no id."""

    id: str | None
    name: str
    scopes: list[str] | None = None
    detectors: list[str] | None = None
    expires_ms: int | None = None
    events_per_s: float | None = None


class LoggedChange(msgspec.Struct, frozen=True, rename={"detector_id": "detectorId"}, omit_defaults=True):
    """A change in the log of the service; `old` and `new` are what differs, as JSON objects."""

    seq: int
    time_ms: int
    token: "TokenOfChange | None"
    request: str | None
    kind: str
    action: str
    id: str
    name: str
    detector_id: str = ""
    old: msgspec.Raw = msgspec.Raw(b"{}")
    new: msgspec.Raw = msgspec.Raw(b"{}")


class Changes(msgspec.Struct, frozen=True):
    """A page of the changes log, and the number after which the next page begins."""

    changes: list[LoggedChange]
    next: int


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rule of a detector, with its condition as a JSON object; after a change, the messages about it."""

    id: str
    condition: dict[str, Any]
    detector_id: str
    enabled: bool
    name: str
    notify: bool
    priority: int
    shadow: bool = False
    draft_of: str | None = None
    description: str = ""
    labels: dict[str, Any] = {}
    timed: bool = False
    every_secs: int | float | None = msgspec.field(default=None, name="every_secs")
    every_by: list[str] | None = msgspec.field(default=None, name="every_by")
    messages: list[Entry] = []


class ShownRule(Rule, frozen=True, kw_only=True):
    """A rule with its condition as text: canonical, and as written."""

    text: str
    source: str


class RuleDifference(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a changed rule differs: its members, and the canonical texts of a different condition."""

    name: str
    members: list[str]
    history: str
    """`kept`, `partly kept` or `begins anew`."""
    before: str = ""
    after: str = ""
    begins_anew: list[str] = []
    """If the history is partly kept, the parts of the condition whose history restarts."""


class RulesChanged(msgspec.Struct, frozen=True, omit_defaults=True):
    """The names of the rules that were created, changed, removed, and left unchanged."""

    created: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: list[str]
    details: list[RuleDifference] = []
    """How each changed rule differs, if requested."""
    messages: list[Entry] = []


class VersionOfRule(Rule, frozen=True, kw_only=True):
    """A rule with its condition as written."""

    source: str


class TokenOfChange(msgspec.Struct, frozen=True):
    """The token that made a change. One from the service's settings has no id."""

    id: str | None
    name: str


class Version(msgspec.Struct, frozen=True):
    """A version of a rule: when it was made, and by whose token; None if unknown."""

    version: int
    time_ms: int | None
    token: TokenOfChange | None
    rule: VersionOfRule


class Relation(msgspec.Struct, frozen=True):
    """A relation without its tuples; `arity` is their length, None if it has none."""

    name: str
    tuples: int
    arity: int | None
    changed_ms: int


class RelationPage(msgspec.Struct, frozen=True):
    """A page of the tuples of a relation, and the `after` of the next page; None at the end."""

    tuples: list[list[str | int | float | bool]]
    next: int | None


class Named(msgspec.Struct, frozen=True):
    """The name of a deleted relation."""

    name: str


class Action(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rule that fired, with its labels."""

    type: str
    rule_id: str
    name: str
    priority: int
    notify: bool
    labels: dict[str, Any] = {}
    suppressed: int = 0
    """How many actions for the same values were suppressed since the previous one."""
    keys: dict[str, Any] | None = None
    """The values of the rule's keys, if details were requested."""
    found: dict[str, Any] | None = None
    """The values of its counting members and terms, if details were requested."""
    time_ms: float | None = msgspec.field(default=None, name="time_ms")
    """When it fired, if it fired because time passed."""
    timed: bool = False
    """Whether it fired because time passed."""


class EventResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one event: the rules that fired, or the errors of a refused event."""

    actions: list[Action]
    errors: list[Entry] = []
    messages: list[Entry] = []


class RefusedRecord(msgspec.Struct, frozen=True):
    """A refused record; `index` is its number among those of its request, from 0."""

    index: int
    code: int
    message: str


class Ingested(msgspec.Struct, frozen=True):
    """The outcome of records: `fired` counts actions, and `errors` has the first refusals."""

    accepted: int
    refused: int
    fired: int
    errors: list[RefusedRecord]


class ExplainedNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition at the explained event, or between two events, with the conditions inside."""

    text: str
    verdict: bool
    nodes: list["ExplainedNode"] = []
    values: dict[str, Any] = {}
    key: dict[str, Any] = {}
    witness_ms: float | None = None
    until_ms: float | None = None
    found: float | dict[str, Any] | None = None
    """The value of an aggregate; for a comparison, the values of its terms by their texts. Absent beyond the
    range of a double, which `note` then says."""
    since_ms: float | None = None
    """Between two events: all later events so far had this verdict."""
    note: str = ""


class ExplainedRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule at the explained event."""

    rule_id: str = msgspec.field(name="ruleId")
    name: str
    verdict: bool
    node: ExplainedNode
    why_not: list[str] | None = None
    shadow: bool = False
    fires_ms: float | None = None
    """When the timed rule fires by time, if only this event happens."""


class Example(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event at which a rule or its draft fired. `cut` says whether long values were cut.

    If only one fired, `rule` and `draft` may be the trees of both as they were before the event.
    """

    number: int
    timestamp_ms: float
    key: dict[str, Any]
    fields: dict[str, Any]
    cut: bool = False
    rule: ExplainedNode | None = None
    draft: ExplainedNode | None = None


class Difference(Example, frozen=True, omit_defaults=True, kw_only=True):
    """An event at which only one of a rule and its draft fired."""

    fired: str
    """The name of the count: `only_rule` or `only_draft`."""


class Comparison(msgspec.Struct, frozen=True):
    """At how many events a rule and its draft fired together, and at how many each fired alone."""

    rule_id: str = msgspec.field(name="ruleId")
    draft_id: str = msgspec.field(name="draftId")
    since_event: int
    events: int
    both: int
    only_rule: int
    only_draft: int
    examples: dict[str, list[Example]]
    """The examples by the names of the three counts, the last event first."""
    since_ms: float | msgspec.UnsetType = msgspec.UNSET
    young_until_ms: float | msgspec.UnsetType | None = msgspec.UNSET
    """Until when the two may differ because one has seen fewer events; None without a bound."""
    differences: list[Difference] = []
    """The differences, oldest first, if requested."""


class ParsedCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition as a JSON object and as canonical text, and the service's messages about it."""

    condition: dict[str, Any]
    text: str
    messages: list[Entry] = []
