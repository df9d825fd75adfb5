"""The entries of a detector's journal.

A record holds the entries of one batch. Replay is deterministic: the time of an event follows from its body
and earlier events, refused events are left out, and rules are stored with their ids. The limits in force are
journaled whenever they change.
"""

import dataclasses
import functools
import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.persistence.columns import condition_bytes, stored_condition
from engine.evaluation.persistence.figures import figures_of, restore_figures
from engine.evaluation.rules import Rule
from engine.evaluation.wire.batches import BatchForm
from engine.language.json.writer import json_bytes
from engine.language.limits import Limits

RECORD_VERSION: Final = 7
"""The version of a journal record. Older ones that are read: 6 lacks bodies of records; 5 lacks ticks, and
rules act whenever they are true; 4 lacks changes that keep histories; 3 lacks shadow rules."""

_UNBOUNDED: Final = 1 << 62


class GivenAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a request with an idempotency key, and the key's digest."""

    key: bytes
    result: bytes
    messages: bytes


class Evaluated(msgspec.Struct, frozen=True, array_like=True, tag="evaluated"):
    """One event, as the request body that carried it."""

    body: bytes
    unused: None = None
    answer: GivenAnswer | None = None
    """Its answer, if it had an idempotency key."""


class EvaluatedBatch(msgspec.Struct, frozen=True, array_like=True, tag="evaluated batch"):
    """Several events, as the request body that carried them, with the refused ones named."""

    body: bytes
    refused: tuple[int, ...] = ()
    """The indices of the refused events."""
    unused: None = None
    form: BatchForm = "json"
    """The encoding of the body."""
    answer: GivenAnswer | None = None


class EvaluatedLines(msgspec.Struct, frozen=True, array_like=True, tag="evaluated lines"):
    """Several events, one per line, with the refused ones named."""

    lines: bytes
    refused: tuple[int, ...] = ()
    """The indices of the refused lines, not counting blank lines."""


class EvaluatedRecords(msgspec.Struct, frozen=True, array_like=True, tag="evaluated records"):
    """Records, as the body that carried them, with the refused ones named. They arrived when executed."""

    body: bytes
    """An Ingest."""
    refused: tuple[int, ...] = ()
    """The places of the refused records."""
    answer: GivenAnswer | None = None


class Ticked(msgspec.Struct, frozen=True, array_like=True, tag="ticked"):
    """The clock was moved without an event."""

    time_us: int
    body: bytes = b""
    """The request's body, if it had an idempotency key."""
    answer: GivenAnswer | None = None


class RulePut(msgspec.Struct, frozen=True, array_like=True, tag="rule put"):
    """A rule was added or changed; its new definition."""

    id: str
    name: str
    condition: bytes
    enabled: bool
    notify: bool
    priority: int
    source: str | None = None
    """The condition as it was written."""
    shadow: bool = False
    draft_of: str | None = None
    description: str = ""
    labels: bytes = b"{}"
    """As JSON."""
    by: str = ""
    """Who made the change: the id of the token, a space and its name."""
    history: Literal["keep"] | None = None
    """Whether a change of the condition kept as much state as it could."""
    timed: bool = False
    every_secs: int | float | None = None
    every_by: tuple[str, ...] | None = None


class RulesChanged(msgspec.Struct, frozen=True, array_like=True, tag="rules changed"):
    """Many rules were added, changed and removed, as one change."""

    put: tuple[RulePut, ...]
    removed: tuple[str, ...]
    by: str = ""


class RuleRemoved(msgspec.Struct, frozen=True, array_like=True, tag="rule removed"):
    """A rule was removed."""

    id: str
    by: str = ""


class DraftPromoted(msgspec.Struct, frozen=True, array_like=True, tag="draft promoted"):
    """A rule and its draft exchanged their conditions."""

    id: str
    """The rule's id."""
    by: str = ""


class RelationPart(msgspec.Struct, frozen=True, array_like=True, tag="relation part"):
    """A part of an upload. It is ignored unless a RelationPut directly follows the last part."""

    staged: bytes
    """A StagedTuples."""


class RelationPut(msgspec.Struct, frozen=True, array_like=True, tag="relation put"):
    """An upload replaced a relation."""

    name: str
    upload: str
    parts: int
    changed_ms: int


class RelationChanged(msgspec.Struct, frozen=True, array_like=True, tag="relation changed"):
    """Tuples were added to a relation, and others removed."""

    change: bytes
    """A ChangeRelation."""
    changed_ms: int


class RelationDeleted(msgspec.Struct, frozen=True, array_like=True, tag="relation deleted"):
    """A relation was deleted."""

    name: str


class LimitsSet(msgspec.Struct, frozen=True, array_like=True, tag="limits set"):
    """The limits in force were changed."""

    limits: Mapping[str, int]


EVALUATED: Final = (Evaluated, EvaluatedBatch, EvaluatedLines, EvaluatedRecords, Ticked)
"""The entries that are events and ticks."""

RULES: Final = (RulePut, RulesChanged, RuleRemoved, DraftPromoted)
"""The entries that are changes of rules."""

JournalEntry = (
    Evaluated
    | EvaluatedBatch
    | EvaluatedLines
    | EvaluatedRecords
    | Ticked
    | RulePut
    | RulesChanged
    | RuleRemoved
    | DraftPromoted
    | RelationPart
    | RelationPut
    | RelationChanged
    | RelationDeleted
    | LimitsSet
)


class JournalRecord(msgspec.Struct, frozen=True, array_like=True):
    """The entries of one batch, and the detector's position after them."""

    clock_us: int | None
    events_seen: int
    complete: bool
    """Whether the journal has all events since the previous record; with `journal_sync` off, it has none."""
    entries: tuple[JournalEntry, ...]
    answered_at_us: int = 0
    """When the operations were executed, in microseconds since 1970."""
    program: str = ""
    """The version of the program that executed them."""
    verdicts: int | None = None
    """The checksum of the verdicts; None if the record is not complete."""
    zones: str = ""
    """The version of the time zones; empty if unknown."""


encode: Final[Callable[[JournalRecord], bytes]] = msgspec.msgpack.Encoder().encode
"""Encodes a record, as a payload of RECORD_VERSION."""
decode: Final = msgspec.msgpack.Decoder(JournalRecord).decode


_AS_IN_A_RULE: Final = frozenset(RulePut.__struct_fields__) - {"condition", "labels", "by", "history"}


def rule_put(rule: Rule, by: str = "", history: Literal["keep"] | None = None) -> RulePut:
    """Return the entry for an added or changed rule."""
    members = {name: getattr(rule, name) for name in _AS_IN_A_RULE}
    condition, labels = condition_bytes(rule.condition), json_bytes(rule.labels)
    return RulePut(**members, condition=condition, labels=labels, by=by, history=history)


def rule_of(put: RulePut) -> Rule:
    """Return the rule of an entry."""
    members = msgspec.structs.asdict(put)
    del members["by"], members["history"]
    members |= {"condition": stored_condition(put.condition), "labels": msgspec.json.decode(put.labels)}
    return Rule(**members)


# Cached, because all detectors of a process have the same limits, and `asdict` is slow.
@functools.lru_cache(maxsize=4)
def limits_document(limits: Limits) -> Mapping[str, int]:
    """Return limits by name."""
    return dataclasses.asdict(limits)


def limits_from(document: Mapping[str, int]) -> Limits:
    """Return the limits of a document.

    Some programs of release 0.1.0 did not bound the values of an event. A replay must accept those.
    """
    return Limits(**{"event_values_max": _UNBOUNDED, **document})


@functools.cache
def program_version() -> str:
    """Return the version of this program."""
    return importlib.metadata.version("rule-detector")


def under_limits(detector: Detector, limits: Limits) -> Detector:
    """Return the detector with other limits. It accepts timestamps of events unchecked."""
    changed = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=limits)
    restore_figures(changed, figures_of(detector))
    return changed
