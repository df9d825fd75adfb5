"""The messages of evaluations: their query parameters and their results."""

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from api.schema.envelope import EntryOfReply
from api.schema.messages.catalogue import YesOrNo
from api.schema.messages.inspecting import ExplainedNode
from api.schema.messages.rules import Labels
from engine.evaluation.inspecting.lists import FIRINGS_PAGE_MAX

_PageSize = Annotated[
    int, Meta(ge=1, le=FIRINGS_PAGE_MAX, extra={"expected": f"a whole number from 1 to {FIRINGS_PAGE_MAX}"})
]
FIRINGS_DEFAULT: Final = 100
"""The default for the maximum number of firings on a page."""


class DetailsQuery(Struct):
    """Whether an evaluation is a dry run, and how detailed its actions are."""

    dry_run: YesOrNo | UnsetType = UNSET
    """`true` returns what the answer would be, without recording the event. Evictions are not predicted, and
    an Idempotency-Key is ignored.
    """
    details: YesOrNo | UnsetType = UNSET
    """`true` adds `keys` and `found` to each action."""


class BatchQuery(DetailsQuery):
    """Whether a batch is a dry run, how detailed its actions are, and what counts as a failure."""

    strict: YesOrNo | UnsetType = UNSET
    """`true` makes a batch fail, with the errors of its events, if none was accepted. By default it succeeds,
    and the results have the errors.
    """


class EvaluateQuery(DetailsQuery):
    """Whether an evaluation is a dry run, and whether it explains its actions."""

    explain: YesOrNo | UnsetType = UNSET
    """`true` adds `node` to each action: the explanation of its rule."""


class RecordedQuery(Struct):
    """The query of an operation without a dry run."""

    dry_run: (
        Annotated[
            Literal["false"], Meta(extra={"expected": "`false`, because this operation has no dry run"})
        ]
        | UnsetType
    ) = UNSET
    """This operation has no dry run; `true` is refused."""


class IngestQuery(RecordedQuery):
    """Which field has the time of a record, and whether the answer has the actions."""

    time: (
        Annotated[str, Meta(min_length=1, max_length=255, extra={"expected": "the name of a field"})]
        | UnsetType
    ) = UNSET
    """The field with the time of a record: ISO 8601, or a number of seconds, milliseconds, microseconds or
    nanoseconds since 1970, told apart by size. By default, a record's time is that of its arrival.
    """
    actions: YesOrNo | UnsetType = UNSET
    """`true` adds `results`, with the actions of each record, in the order of the body."""


class Action(Struct):
    """The action of a rule whose condition is true; `type` is `notify` if the rule's `notify` is true."""

    type: Literal["match", "notify"]
    ruleId: str
    name: str
    priority: int
    notify: bool
    labels: Labels | UnsetType = UNSET
    """The labels of the rule, if it has any."""
    suppressed: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    """How many actions for the same values were suppressed since the previous one; see `every_secs`."""
    keys: dict[str, Any] | UnsetType = UNSET
    """The values of the rule's keys, with `details=true`; long ones are cut."""
    found: dict[str, Any] | UnsetType = UNSET
    """The values of its counting members and terms, by their texts, with `details=true`."""
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


class ActionsByTime(Struct):
    """The actions of a tick, in order of time and priority."""

    actions: list[ActionByTime]


class EventResult(Struct):
    """The result of one event of a batch. A refused event has no actions; `errors` say why."""

    actions: list[Action]
    errors: list[EntryOfReply] | UnsetType = UNSET
    messages: list[EntryOfReply] | UnsetType = UNSET


class BatchResults(Struct):
    """The results of a batch, one for each event in order."""

    results: list[EventResult]


class RefusedRecord(Struct, kw_only=True):
    """A refused record; `index` counts the records of the body from 0."""

    index: int = 0
    code: int
    message: str


class Ingested(Struct):
    """The outcome of the records of a body."""

    accepted: int
    refused: int
    fired: int
    """The number of actions."""
    errors: list[RefusedRecord]
    """The first 20 refusals."""
    results: list[EventResult] | UnsetType = UNSET
    """With `actions=true`: the result of each record, in the order of the body."""


class FiringsQuery(Struct):
    """The page of a feed."""

    after: (
        Annotated[int, Meta(ge=0, le=1 << 53, extra={"expected": "the number of a firing, or 0"})] | UnsetType
    ) = UNSET
    """Only firings after the one with this number: the `next` of a page. By default, a page begins with the
    oldest stored firing, and a stream with the next one.
    """
    limit: _PageSize | UnsetType = UNSET
    """The maximum number of firings, 100 by default; a stream ignores it."""


class Why(Struct):
    """Why a rule fired, in short."""

    version: int
    """The version of the rule at that time; see the versions of a rule."""


class Gap(Struct, rename={"from_": "from"}):
    """The numbers of the first and the last firing that are gone."""

    from_: int
    to: int


class Firing(Struct):
    """A firing: the rule as it was then, and the keys it fired for. A page may begin with a gap instead."""

    gap: Gap | UnsetType = UNSET
    """The requested firings that are no longer stored. Such an entry has no other members."""
    seq: int | UnsetType = UNSET
    """Its number, counting the detector's firings from 1."""
    time_ms: float | UnsetType = UNSET
    """The time of the event by the detector's clock, or the time at which time alone made the rule true."""
    ruleId: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    keys: dict[str, Any] | UnsetType = UNSET
    """The values of the rule's keys; long ones are cut."""
    found: dict[str, Any] | UnsetType = UNSET
    """The values of its counting members and terms, by their texts."""
    labels: Labels | UnsetType = UNSET
    suppressed: int | UnsetType = UNSET
    """How many firings for the same keys were suppressed since the previous one."""
    timed: bool | UnsetType = UNSET
    """True if time alone made the rule true."""
    why: Why | UnsetType = UNSET


class Firings(Struct):
    """A page of a feed: firings in order, perhaps after a gap."""

    firings: list[Firing]
    next: int
    """The number after which the next page begins."""
