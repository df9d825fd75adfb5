"""What a detector's journal tells: the steps that were taken, in order, so that they can be taken again.

A record holds the steps of one batch. Nothing in it depends on a clock or on chance: events have the time
that follows from their bodies and from those before them, what was refused is left out, and rules come with
their ids. The limits in force stand in the journal wherever they change.
"""

import dataclasses
import functools
import importlib.metadata
from typing import Any, Final, assert_never

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.persistence.packing import condition_bytes
from engine.evaluation.persistence.saved import stored_condition
from engine.evaluation.rules import Rule
from engine.evaluation.wire.events import BatchForm, decode_batch, decode_evaluate, sent_with
from engine.evaluation.wire.lines import decode_lines, event_in
from engine.language.diagnostics import Refusal
from engine.language.limits import Limits
from engine.runtime.contract.operations import BATCH_KINDS, EVALUATE
from engine.runtime.detector.idempotency import (
    REQUEST_DIGEST_BYTES,
    CachedAnswer,
    IdempotencyCache,
    key_digest,
    request_digest,
)

_UNBOUNDED: Final = 1 << 62

RECORD_VERSION: Final = 3
"""Of version 1 all bodies are JSON, none of them in lines. Up to version 2 answers stand there with their
keys, and nothing tells the program that wrote the record, nor what its events came to."""


class EarlierAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A kept answer as records up to version 2 and snapshots of version 3 have it."""

    key: str
    digest: bytes
    answered_at_us: int
    result: bytes
    messages: bytes

    def current(self) -> CachedAnswer:
        """Give it as it is kept now."""
        request = self.digest[:REQUEST_DIGEST_BYTES]
        return CachedAnswer(key_digest(self.key), request, self.result, self.messages)


class GivenAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a request with an idempotency key: the digest of that, and what was answered."""

    key: bytes
    result: bytes
    messages: bytes


class Evaluated(msgspec.Struct, frozen=True, array_like=True, tag="evaluated"):
    """One event, by the body that brought it."""

    body: bytes
    earlier: EarlierAnswer | None = None
    """Its answer, in records up to version 2."""
    answer: GivenAnswer | None = None
    """Where it had an idempotency key."""


class EvaluatedBatch(msgspec.Struct, frozen=True, array_like=True, tag="evaluated batch"):
    """Several events, by the body that brought them, but for those that were refused."""

    body: bytes
    refused: tuple[int, ...] = ()
    """Their places."""
    earlier: EarlierAnswer | None = None
    form: BatchForm = "json"
    """What the body is written in."""
    answer: GivenAnswer | None = None


class EvaluatedLines(msgspec.Struct, frozen=True, array_like=True, tag="evaluated lines"):
    """Several events, each in a line of its own, but for those that were refused."""

    lines: bytes
    refused: tuple[int, ...] = ()
    """Their places among the lines that are not blank."""


class RulePut(msgspec.Struct, frozen=True, array_like=True, tag="rule put"):
    """A rule as it stands from here on: a new one, or one that was changed."""

    id: str
    name: str
    condition: bytes
    enabled: bool
    notify: bool
    priority: int


class RuleRemoved(msgspec.Struct, frozen=True, array_like=True, tag="rule removed"):
    """A rule is there no more."""

    id: str


class LimitsSet(msgspec.Struct, frozen=True, array_like=True, tag="limits set"):
    """The limits in force from here on."""

    limits: dict[str, int]


EVALUATED: Final = (Evaluated, EvaluatedBatch, EvaluatedLines)
"""The steps that are events."""

JournalEntry = Evaluated | EvaluatedBatch | EvaluatedLines | RulePut | RuleRemoved | LimitsSet


class JournalRecord(msgspec.Struct, frozen=True, array_like=True):
    """The steps of one batch, and where the detector stood after them."""

    clock_us: int | None
    events_seen: int
    complete: bool
    """Whether every event since the record before is in the journal; with `journal_sync` off none is."""
    entries: tuple[JournalEntry, ...]
    answered_at_us: int = 0
    """When its operations were carried out, in microseconds since 1970."""
    program: str = ""
    """The version of the program that carried them out; empty where an earlier one did not say."""
    verdicts: int | None = None
    """The checksum of what fired at its events; None where an earlier program did not say."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(JournalRecord).decode


class Diverged(Exception):
    """What was taken again led elsewhere than the first time."""


def encode(record: JournalRecord) -> bytes:
    """Give a record's payload, of RECORD_VERSION."""
    return _encode(record)


def decode(payload: bytes) -> JournalRecord:
    """Give back what `encode` took."""
    return _decode(payload)


def rule_put(rule: Rule) -> RulePut:
    """Give the step that puts a rule."""
    return RulePut(
        rule.id, rule.name, condition_bytes(rule.condition), rule.enabled, rule.notify, rule.priority
    )


def limits_set(limits: Limits) -> LimitsSet:
    """Give the step that sets limits."""
    return LimitsSet(limits_document(limits))


def limits_document(limits: Limits) -> dict[str, int]:
    """Give limits by name."""
    return dataclasses.asdict(limits)


def limits_from(document: dict[str, int]) -> Limits:
    """Give the limits of a document; what it does not name, because it is older, is as by default.

    The bounds on what keys take, and on what patterns are tried on, did not hold before they were there: the
    past stays as it was.
    """
    unbounded = {"state_bytes_max": _UNBOUNDED, "pattern_event_bytes_max": _UNBOUNDED}
    return Limits(**{**unbounded, **document})


@functools.cache
def program_version() -> str:
    """Give the version of this program, as records tell it."""
    return importlib.metadata.version("rule-detector")


class Replay:
    """A detector that goes again through what its journal tells."""

    def __init__(self, detector: Detector, answers: IdempotencyCache) -> None:
        self.detector = detector
        self.answers = answers

    def take(self, record: JournalRecord) -> bool:
        """Take the steps of a record; whether the same rules fired as when they were taken first.

        Raises Diverged where they lead elsewhere than they did.
        """
        self.detector.verdicts.take()
        for entry in record.entries:
            self._take(entry, record.answered_at_us)
        detector = self.detector
        there = (detector.clock_us, detector.events_seen)
        if record.complete and there != (record.clock_us, record.events_seen):
            raise Diverged(
                f"it led to event {there[1]} at {there[0]} µs, "
                f"and had led to event {record.events_seen} at {record.clock_us} µs"
            )
        verdicts = detector.verdicts.take()
        return record.verdicts is None or record.verdicts == verdicts

    def _take(self, entry: JournalEntry, at_us: int) -> None:
        detector = self.detector
        match entry:
            case Evaluated():
                body = decode_evaluate(entry.body, detector.limits)
                self._observe([(body.event.fields, body.event.timestamp_ms, sent_with(body.context))])
                self._keep(EVALUATE, entry, at_us)
            case EvaluatedBatch():
                batch = decode_batch(entry.body, detector.limits, entry.form)
                refused, sent = frozenset(entry.refused), sent_with(batch.context)
                self._observe(
                    [
                        (event.fields, event.timestamp_ms, sent)
                        for place, event in enumerate(batch.events)
                        if place not in refused
                    ]
                )
                self._keep(BATCH_KINDS[entry.form], entry, at_us)
            case EvaluatedLines():
                self._observe(_events_of(entry, detector.limits))
            case RulePut():
                detector.put_rule(
                    Rule(
                        id=entry.id,
                        name=entry.name,
                        condition=stored_condition(entry.condition),
                        enabled=entry.enabled,
                        notify=entry.notify,
                        priority=entry.priority,
                    )
                )
            case RuleRemoved():
                detector.remove_rule(entry.id)
            case LimitsSet():
                self.detector = under_limits(detector, limits_from(entry.limits))
            case _:
                assert_never(entry)

    def _observe(self, events: list[Any]) -> None:
        outcomes = self.detector.submit_clean(events)
        self.detector.forget_lookups()
        for refusal in outcomes.refused.values():
            raise Diverged(f"an event was refused that had not been: {refusal}") from refusal

    def _keep(self, kind: str, entry: Evaluated | EvaluatedBatch, at_us: int) -> None:
        answer, earlier = entry.answer, entry.earlier
        if answer is not None:
            request = request_digest(kind, entry.body)
            self.answers.keep(CachedAnswer(answer.key, request, answer.result, answer.messages), at_us)
        elif earlier is not None:
            self.answers.keep(earlier.current(), earlier.answered_at_us)


def _events_of(entry: EvaluatedLines, limits: Limits) -> list[Any]:
    refused = frozenset(entry.refused)
    events = []
    for place, line in enumerate(decode_lines(entry.lines, limits)):
        if place in refused:
            continue
        if isinstance(line, Refusal):
            raise Diverged(f"a line was refused that had not been: {line}")
        events.append(event_in(line))
    return events


def under_limits(detector: Detector, limits: Limits) -> Detector:
    """Give the detector as it is under other limits. It takes events as they are stamped."""
    return Detector.load(detector.dump(), Detector.STATE_VERSION, limits=limits)
