"""Operations on a detector, as sent from front end to worker, and the request that they belong to."""

from contextvars import ContextVar
from typing import Any, Final, Literal, NamedTuple

import msgspec

from engine.evaluation.inspecting.comparisons import ComparisonAsked
from engine.evaluation.inspecting.lists import FIRINGS_PAGE_MAX, FiringsAsked, RulesAsked
from engine.evaluation.inspecting.states import StateAsked
from engine.evaluation.inspecting.timelines import TimelineAsked
from engine.evaluation.rules import Labels
from engine.evaluation.wire.batches import BatchForm
from engine.evaluation.wire.records import Ingest
from engine.language.condition import Scalar
from engine.language.json.writer import json_bytes
from engine.runtime.contract.requests.tuples import (
    ChangeRelation,
    NamedRelation,
    PutRelation,
    StagedTuples,
    TuplesPart,
)

EVALUATE: Final = "evaluate"
EVALUATE_EXPLAINED: Final = "evaluate_explained"
EVALUATE_BATCH: Final = "evaluate_batch"
EVALUATE_MSGPACK: Final = "evaluate_msgpack"
EVALUATE_LINES: Final = "evaluate_lines"
INGEST: Final = "ingest"
TICK: Final = "tick"
TICK_DUE: Final = "tick_due"
"""The kind that moves the clock to the present time if something is due. Sent by workers to themselves."""
DRY_RUN: Final = "dry_run"
DRY_RUN_EXPLAINED: Final = "dry_run_explained"
DRY_RUN_BATCH: Final = "dry_run_batch"
DRY_RUN_MSGPACK: Final = "dry_run_msgpack"
EXPLAIN: Final = "explain"
STATE: Final = "state"
TIMELINE: Final = "timeline"
COMPARISON: Final = "comparison"
FIRINGS: Final = "firings"
RULES: Final = "rules"
RULE: Final = "rule"
ADD_RULE: Final = "add_rule"
CHANGE_RULE: Final = "change_rule"
REMOVE_RULE: Final = "remove_rule"
PUT_RULES: Final = "put_rules"
PUT_RULES_DRY: Final = "put_rules_dry"
VERSIONS: Final = "versions"
PROMOTE: Final = "promote"
RELATIONS: Final = "relations"
RELATION: Final = "relation"
STAGE_TUPLES: Final = "stage_tuples"
PUT_RELATION: Final = "put_relation"
DROP_TUPLES: Final = "drop_tuples"
CHANGE_RELATION: Final = "change_relation"
DELETE_RELATION: Final = "delete_relation"

BATCH_FORMS: Final[dict[str, BatchForm]] = {EVALUATE_BATCH: "json", EVALUATE_MSGPACK: "msgpack"}
"""The encoding of the payload, for each kind that evaluates batches."""

DRY_BATCH_FORMS: Final[dict[str, BatchForm]] = {DRY_RUN_BATCH: "json", DRY_RUN_MSGPACK: "msgpack"}
"""The same for the kinds that evaluate batches without effect."""

READS: Final = frozenset(
    {
        *(DRY_RUN, DRY_RUN_EXPLAINED, *DRY_BATCH_FORMS, EXPLAIN, STATE, TIMELINE, COMPARISON, RULES, RULE),
        *(VERSIONS, PUT_RULES_DRY, RELATIONS, RELATION, FIRINGS),
    }
)
"""The kinds that do not change the detector."""

ANSWERS_MUCH: Final = (READS - {RULE}) | {*BATCH_FORMS, EVALUATE_LINES, EVALUATE_EXPLAINED, INGEST, TICK}
"""The kinds whose answers may be much larger than the request."""

EVALUATIONS: Final = frozenset({EVALUATE, EVALUATE_EXPLAINED, *BATCH_FORMS, EVALUATE_LINES, INGEST})
"""The kinds that evaluate events."""

LONG: Final = frozenset({PUT_RULES, PUT_RULES_DRY, TICK, TICK_DUE})
"""The kinds that may take LONG_S longer than others in a worker: they parse many conditions, or fire rules
for very many keys."""
LONG_S: Final = 600.0

UPLOADS: Final = frozenset({STAGE_TUPLES, PUT_RELATION, DROP_TUPLES})
"""The kinds that upload a relation in parts."""

BATCH_KINDS: Final = {form: kind for kind, form in BATCH_FORMS.items()}
"""The kind that evaluates a batch, by its encoding."""

DRY_BATCH_KINDS: Final = {form: kind for kind, form in DRY_BATCH_FORMS.items()}
"""The kind that evaluates a batch without effect, by its encoding."""


class Operation(NamedTuple):
    """One operation on a detector. The payload is a request's body as received, or a struct as JSON."""

    kind: str
    payload: bytes
    key: str = ""
    """The caller's idempotency key, if an evaluation has one."""
    request_id: str = ""
    """The id of the HTTP request, for the log; set when the operation is sent to a worker."""
    by: str = ""
    """Who changes rules: the id of the token, a space and its name."""
    details: bool = False
    """Whether the actions of an evaluation have `keys` and `found`."""

    def log_fields(self, detector_id: str) -> dict[str, str]:
        """Return the fields of log records written during its execution."""
        fields = {"detector": detector_id, "operation": self.kind}
        return {"request": self.request_id, **fields} if self.request_id else fields


class CurrentRequest:
    """A caller's request. A time is None while unknown, as in a request that calls no detector."""

    # Class attributes make creating a request cheaper.
    queued_s: float | None = None
    """How long its calls to detectors waited before they were executed."""
    evaluated_s: float | None = None
    """How long the batches that executed them took, without the sync."""
    synced_s: float | None = None
    """How long it took to make these batches durable."""

    token_id: str = ""
    """The id of the caller's token, once known."""

    def __init__(self, id_: str = "", head: Any = None) -> None:
        self.id = id_
        self.head = head
        """The `traceparent` header; None for a request of the service itself."""

    @property
    def trace_id(self) -> str:
        """The id of the caller's trace; empty if there is none."""
        return ""

    @property
    def fields(self) -> dict[str, str]:
        """The ids as fields of a log record, without empty ones."""
        ids = {"request": self.id, "trace": self.trace_id}
        return {name: value for name, value in ids.items() if value}

    def add(self, queued_s: float, evaluated_s: float | None, synced_s: float | None) -> None:
        """Add the times of a call to a detector."""
        self.queued_s = (self.queued_s or 0.0) + queued_s
        if evaluated_s is not None:
            self.evaluated_s = (self.evaluated_s or 0.0) + evaluated_s
        if synced_s is not None:
            self.synced_s = (self.synced_s or 0.0) + synced_s


_CURRENT: Final[ContextVar[CurrentRequest | None]] = ContextVar("current_request", default=None)


def begin_request(request: CurrentRequest) -> None:
    """Make a request the current one of this task and of the tasks that it starts."""
    _CURRENT.set(request)


def current_request() -> CurrentRequest:
    """Return the current request; outside a request, one without an id."""
    return _CURRENT.get() or CurrentRequest()


class NamedRule(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of `rule`, `remove_rule` and `promote`."""

    rule_id: str


class AddRule(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of `add_rule`. The condition is text, in the language or JSON."""

    name: str
    condition: str
    notify: bool = False
    shadow: bool = False
    draft_of: str | None = None
    description: str = ""
    labels: str = "{}"
    """Encoded as JSON, because msgspec encodes no integers beyond 64 bits. The same holds for ChangeRule."""
    timed: bool = False
    every_secs: int | float = 0
    every_by: list[str] | None = None


class PutRule(AddRule, omit_defaults=True):
    """One rule in the payload of `put_rules`. `draft_of` is a name here, not an id."""

    enabled: bool = True
    history: Literal["keep"] | None = None


class PutRules(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The payload of `put_rules` and `put_rules_dry`."""

    rules: list[PutRule]
    prune: bool = False
    details: bool = False
    """Whether the result includes how each changed rule differs."""


class ChangeRule(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of `change_rule`. None leaves a field unchanged."""

    rule_id: str
    name: str | None = None
    condition: str | None = None
    enabled: bool | None = None
    notify: bool | None = None
    shadow: bool | None = None
    description: str | None = None
    labels: str | None = None
    history: Literal["keep"] | None = None
    timed: bool | None = None
    every_secs: int | float | None = None
    every_by: list[str] | None = None


def members_of(given: AddRule | ChangeRule) -> dict[str, Any]:
    """Return the members of a rule's payload, with the labels decoded."""
    labels = None if given.labels is None else msgspec.json.decode(given.labels)
    return msgspec.structs.asdict(given) | {"labels": labels}


def evaluate(body: bytes, key: str = "", *, explained: bool = False) -> Operation:
    """Evaluate the event in a request's body. `explained` adds `keys` and `found` to the actions."""
    return Operation(EVALUATE_EXPLAINED if explained else EVALUATE, body, key)


def dry_run(body: bytes, *, explained: bool = False) -> Operation:
    """Return what `evaluate` would answer, without effect."""
    return Operation(DRY_RUN_EXPLAINED if explained else DRY_RUN, body)


def dry_run_batch(body: bytes, form: BatchForm = "json") -> Operation:
    """Return what `evaluate_batch` would answer, without effect."""
    return Operation(DRY_BATCH_KINDS[form], body)


def evaluate_batch(body: bytes, key: str = "", form: BatchForm = "json") -> Operation:
    """Evaluate the events in a request's body, in order."""
    return Operation(BATCH_KINDS[form], body, key)


def evaluate_lines(lines: bytes) -> Operation:
    """Evaluate the events in some lines of a stream, in order. The result has a line for each."""
    return Operation(EVALUATE_LINES, lines)


def ingest(given: Ingest, key: str = "") -> Operation:
    """Evaluate records in the order of their times, and count the outcomes."""
    return Operation(INGEST, msgspec.msgpack.encode(given), key)


def tick(body: bytes, key: str = "") -> Operation:
    """Move the clock to the time in a request's body, and return the rules that fire: `{"actions": ...}`."""
    return Operation(TICK, body, key)


def explain(body: bytes) -> Operation:
    """Explain the event in a request's body, without effect."""
    return Operation(EXPLAIN, body)


def timeline(rule_id: str, key: dict[str, Scalar], after: int) -> Operation:
    """Return the latest events on the timeline of a rule. The first call starts the timeline."""
    return Operation(TIMELINE, msgspec.json.encode(TimelineAsked(rule_id, key, after)))


def firings(after: int | None, limit: int = FIRINGS_PAGE_MAX) -> Operation:
    """Return at most `limit` firings after a number, future ones for None: `{"firings": [...], "next"}`."""
    return Operation(FIRINGS, msgspec.json.encode(FiringsAsked(after, limit)))


def state(asked: StateAsked) -> Operation:
    """Return the detector's state, or a part of it."""
    return Operation(STATE, msgspec.json.encode(asked))


def rules(after: int = 0, limit: int = 0, *, source: bool = False, name: str | None = None) -> Operation:
    """Return at most `limit` rules after a priority, all if `limit` is 0: `{"rules": [...]}`.

    `source` adds the conditions as text to the rules of a page. `name` selects the rules of that name.
    """
    return Operation(RULES, msgspec.json.encode(RulesAsked(after, limit, source, name)))


def rule(rule_id: str) -> Operation:
    """Return one rule."""
    return Operation(RULE, msgspec.json.encode(NamedRule(rule_id)))


def add_rule(name: str, condition: str, *, labels: Labels | None = None, **members: Any) -> Operation:
    """Add a rule: `{"id": ...}`. `members` are further members of AddRule."""
    added = AddRule(name, condition, labels=json_bytes(labels or {}).decode(), **members)
    return Operation(ADD_RULE, msgspec.json.encode(added))


def change_rule(rule_id: str, *, labels: Labels | None = None, **members: Any) -> Operation:
    """Change the given members of a rule (see ChangeRule), and return the whole rule.

    With `history`, a new condition keeps as much state as it can.
    """
    encoded = None if labels is None else json_bytes(labels).decode()
    return Operation(CHANGE_RULE, msgspec.json.encode(ChangeRule(rule_id, labels=encoded, **members)))


def remove_rule(rule_id: str) -> Operation:
    """Remove a rule: `{"id": ...}`."""
    return Operation(REMOVE_RULE, msgspec.json.encode(NamedRule(rule_id)))


def put_rules(
    rules: list[PutRule], *, prune: bool = False, dry_run: bool = False, details: bool = False
) -> Operation:
    """Create or change rules, by name, as one change: `{"created", "changed", "removed", "unchanged"}`.

    `details` adds how each changed rule differs to the result.
    """
    payload = msgspec.json.encode(PutRules(rules, prune, details))
    return Operation(PUT_RULES_DRY if dry_run else PUT_RULES, payload)


def versions(rule_id: str) -> Operation:
    """Return the versions of a rule, newest first: `{"versions": [...]}`."""
    return Operation(VERSIONS, msgspec.json.encode(NamedRule(rule_id)))


def comparison(rule_id: str, after: int | None = None) -> Operation:
    """Return how the firings of a rule and its draft differ; `after` watches for further differences."""
    return Operation(COMPARISON, msgspec.json.encode(ComparisonAsked(rule_id, after)))


def promote(rule_id: str) -> Operation:
    """Swap the conditions of a rule and its draft, and return the rule."""
    return Operation(PROMOTE, msgspec.json.encode(NamedRule(rule_id)))


def relations() -> Operation:
    """Return a detector's relations without their tuples: `{"relations": [...]}`."""
    return Operation(RELATIONS, b"")


def relation(name: str, after: int = 0, limit: int = 0) -> Operation:
    """Return at most `limit` tuples of a relation after a position: `{"tuples": [...], "next": ...}`."""
    return Operation(RELATION, msgspec.json.encode(NamedRelation(name, after, limit)))


def stage_tuples(upload: str, number: int, part: TuplesPart) -> Operation:
    """Store a part of an upload for `put_relation`; the relation does not change yet."""
    return Operation(STAGE_TUPLES, msgspec.msgpack.encode(StagedTuples(upload, number, part)))


def put_relation(name: str, upload: str, parts: int) -> Operation:
    """Replace a relation by an upload, as one change, and return its new description."""
    return Operation(PUT_RELATION, msgspec.json.encode(PutRelation(name, upload, parts)))


def drop_tuples(upload: str) -> Operation:
    """Drop the staged parts of an abandoned upload."""
    return Operation(DROP_TUPLES, upload.encode())


def change_relation(name: str, add: msgspec.Raw, remove: msgspec.Raw) -> Operation:
    """Add tuples to a relation and remove others, as one change, and return its new description."""
    return Operation(CHANGE_RELATION, msgspec.json.encode(ChangeRelation(name, add, remove)))


def delete_relation(name: str) -> Operation:
    """Delete a relation: `{"name": ...}`."""
    return Operation(DELETE_RELATION, msgspec.json.encode(NamedRelation(name)))
