"""The messages of evaluations: their query parameters and their results."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from api.schema.envelope import EntryOfReply
from api.schema.messages.catalogue import YesOrNo
from api.schema.messages.explanations import ExplainedNode
from api.schema.messages.rules import Labels


class BatchQuery(Struct):
    """Whether a batch is a dry run, and how much its actions say."""

    dry_run: YesOrNo | UnsetType = UNSET
    """`true` returns what the answer would be, and records nothing. Evictions are not predicted, and an
    Idempotency-Key is ignored.
    """
    details: YesOrNo | UnsetType = UNSET
    """`true` adds `keys` and `found` to each action."""


class EvaluateQuery(BatchQuery):
    """Whether an evaluation is a dry run, and whether it explains its actions."""

    explain: YesOrNo | UnsetType = UNSET
    """`true` adds `node` to each action: the explanation of its rule."""


class Action(Struct):
    """The action of a rule whose condition is true; `type` is `notify` if the rule's `notify` is true."""

    type: Literal["match", "notify"]
    ruleId: str
    name: str
    priority: int
    notify: bool
    labels: Labels | UnsetType = UNSET
    """Those of the rule, if it has any."""
    keys: dict[str, Any] | UnsetType = UNSET
    """The values of the rule's keys, with `details=true`; long ones are cut."""
    found: dict[str, Any] | UnsetType = UNSET
    """What its counting members and terms found, by their texts, with `details=true`."""
    node: ExplainedNode | UnsetType = UNSET
    """Why the rule fires, with `explain=true`."""


class Actions(Struct):
    """The actions of one event, by priority."""

    actions: list[Action]


class ActionByTime(Action, kw_only=True):
    """The action of a rule that fired because time passed."""

    keys: dict[str, Any]
    """The values of the rule's keys; long ones are cut."""
    time_ms: float
    """When it fired, by the detector's clock."""
    timed: Literal[True]
    suppressed: int | UnsetType = UNSET
    """How many firings for these keys were held back since the one before, if any were."""


class ActionsByTime(Struct):
    """The actions of a tick, in order of time and priority."""

    actions: list[ActionByTime]


class EventResult(Struct):
    """The result of one event of a batch. A refused event has no actions, and `errors` say why."""

    actions: list[Action]
    errors: list[EntryOfReply] | UnsetType = UNSET
    messages: list[EntryOfReply] | UnsetType = UNSET


class BatchResults(Struct):
    """The results of a batch, one for each event in order."""

    results: list[EventResult]
