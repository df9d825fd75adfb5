"""Executes one operation on a detector, which gives its answer and its journal entry."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.inspecting.comparisons import comparison_asked
from engine.evaluation.inspecting.explanations import (
    dry_run_batch_body,
    dry_run_body,
    evaluate_explained_body,
    explain_body,
)
from engine.evaluation.inspecting.lists import firings_of, rules_of
from engine.evaluation.inspecting.states import state_of
from engine.evaluation.inspecting.timelines import timeline
from engine.evaluation.relations.stored import StoredRelation
from engine.evaluation.rule_book.changes.versions import Change
from engine.evaluation.rule_book.rule_messages import change_messages, condition_messages, equality_messages
from engine.evaluation.rules import rule_as_sent, rule_with_text
from engine.evaluation.wire.decoding import decode_tick
from engine.evaluation.wire.events import (
    Answer,
    Done,
    Refused,
    encode_entries,
    evaluate_batch_body,
    evaluate_body,
    evaluate_lines,
    tick,
)
from engine.evaluation.wire.records import Ingest, ingest
from engine.language.diagnostics import Entry, Refusal
from engine.language.json.writer import json_bytes
from engine.runtime.contract.requests import operations
from engine.runtime.contract.requests.operations import (
    BATCH_FORMS,
    DRY_BATCH_FORMS,
    EVALUATE,
    EVALUATE_EXPLAINED,
    INGEST,
    AddRule,
    ChangeRule,
    NamedRule,
    Operation,
    members_of,
)
from engine.runtime.contract.requests.tuples import NamedRelation, PutRelation
from engine.runtime.detector.lag import due_of
from engine.runtime.detector.persistence import journal_entries as entries
from engine.runtime.detector.persistence.idempotency import (
    CachedAnswer,
    IdempotencyCache,
    key_digest,
    request_digest,
)
from engine.runtime.detector.persistence.logged_changes import Before
from engine.runtime.detector.persistence.uploads import Uploads, change_relation
from engine.runtime.detector.put_rules import put_rules


class Applied(NamedTuple):
    """The outcome of an operation. Without an entry, the detector is unchanged."""

    answer: Answer
    entry: entries.JournalEntry | None = None


def apply(
    detector: Detector,
    detector_id: str,
    answers: IdempotencyCache,
    operation: Operation,
    now_us: int,
    *,
    between: Callable[[], None] = lambda: None,
) -> Applied:
    """Execute an operation at a given time. A refused operation changes nothing.

    `between` is called from time to time during a long operation, when half of it may be done.
    """
    try:
        match operation.kind:
            # The most frequent case comes first, because each case before it would take time.
            case kind if kind in (EVALUATE, EVALUATE_EXPLAINED, INGEST) or kind in BATCH_FORMS:
                return _evaluated(detector, answers, operation, now_us, between)
            case operations.TICK:
                return _ticked(detector, answers, operation, now_us, between)
            case operations.TICK_DUE:
                return _ticked_if_due(detector, now_us, between)
            case operations.EXPLAIN:
                return Applied(explain_body(detector, operation.payload))
            case operations.RULES:
                return Applied(rules_of(detector, detector_id, operation.payload))
            case operations.STATE:
                return Applied(state_of(detector, operation.payload))
            case operations.TIMELINE:
                return Applied(timeline(detector, operation.payload))
            case operations.COMPARISON:
                return Applied(comparison_asked(detector, operation.payload))
            case operations.FIRINGS:
                return Applied(firings_of(detector, operation.payload))
            case operations.DRY_RUN | operations.DRY_RUN_EXPLAINED as kind:
                how = {"explained": kind == operations.DRY_RUN_EXPLAINED, "detailed": operation.details}
                return Applied(dry_run_body(detector, operation.payload, **how))
            case kind if kind in DRY_BATCH_FORMS:
                form, details = DRY_BATCH_FORMS[kind], operation.details
                answer = dry_run_batch_body(detector, operation.payload, form, between, detailed=details)
                return Applied(answer)
            case operations.EVALUATE_LINES:
                return _lines_evaluated(detector, operation, between)
            case _:
                detector.change, was = Change(now_us, operation.by), Before(detector, operation)
                changed = _related(detector, operation, now_us)
                result, entry, messages = changed or _ruled(detector, detector_id, operation, between)
                logged = b"" if entry is None else was.changes(detector, result)
                return Applied(Done(json_bytes(result), encode_entries(messages), logged), entry)
    except Refusal as refusal:
        return Applied(Refused(refusal.entries))


def apply_upload(detector: Detector, uploads: Uploads, operation: Operation, now_us: int) -> Applied:
    """Execute an operation of UPLOADS at a given time."""
    payload = operation.payload
    try:
        match operation.kind:
            case operations.STAGE_TUPLES:
                uploads.stage(detector, payload, now_us)
            case operations.DROP_TUPLES:
                uploads.drop(payload.decode())
            case _:
                put = msgspec.json.decode(payload, type=PutRelation)
                entry = entries.RelationPut(put.name, put.upload, put.parts, now_us // 1000)
                was = Before(detector, operation)
                now = uploads.install(detector, put.name, put.upload, put.parts, entry.changed_ms)
                return Applied(Done(json_bytes(_shown(put.name, now)), b"[]", was.changes(detector)), entry)
    except Refusal as refusal:
        return Applied(Refused(refusal.entries))
    return Applied(Done(b"{}"))


def _evaluated(
    detector: Detector,
    answers: IdempotencyCache,
    operation: Operation,
    now_us: int,
    between: Callable[[], None],
) -> Applied:
    """Evaluate, or repeat the stored answer. Raises Refusal 1006 and 1401 for the idempotency key."""
    explained = operation.kind == EVALUATE_EXPLAINED
    if explained:
        # Stored answers do not distinguish explained evaluations, because journal entries do not.
        operation = operation._replace(kind=EVALUATE)
    key = key_digest(operation.key) if operation.key else b""
    if key:
        before = answers.find(key, operation, now_us)
        if before is not None:
            return Applied(before)
    # After a long silence, many timed rules may fire before the first event.
    detector.timing.between = between
    seen_before = detector.events_seen
    form = BATCH_FORMS.get(operation.kind)
    answer: Answer
    refused: tuple[int, ...]
    body, detailed = operation.payload, operation.details
    if operation.kind == INGEST:
        records = msgspec.msgpack.decode(body, type=Ingest)
        answer, refused = ingest(detector, records, now_us, between)
    elif form is not None:
        answer, refused = evaluate_batch_body(detector, body, form, between, detailed=detailed)
    elif explained or detailed:
        answer = evaluate_explained_body(detector, body, explained=explained, detailed=detailed)
        refused = ()
    else:
        answer, refused = evaluate_body(detector, body), ()
    if isinstance(answer, Refused):
        return Applied(answer)
    if not key and detector.events_seen == seen_before:
        return Applied(answer)
    given = _given(operation, answer, answers, now_us)
    if operation.kind == INGEST:
        return Applied(answer, entries.EvaluatedRecords(body, refused, given))
    if form is None:
        return Applied(answer, entries.Evaluated(operation.payload, answer=given))
    return Applied(answer, entries.EvaluatedBatch(operation.payload, refused, form=form, answer=given))


def _given(
    operation: Operation, answer: Done, answers: IdempotencyCache, now_us: int
) -> entries.GivenAnswer | None:
    """Store the answer if the operation has a key; return the part of it for the journal."""
    if not operation.key:
        return None
    key, request = key_digest(operation.key), request_digest(operation.kind, operation.payload)
    answers.keep(CachedAnswer(key, request, answer.result, answer.messages), now_us)
    return entries.GivenAnswer(key, answer.result, answer.messages)


def _ticked(
    detector: Detector,
    answers: IdempotencyCache,
    operation: Operation,
    now_us: int,
    between: Callable[[], None],
) -> Applied:
    """Tick, or repeat the stored answer. Raises Refusal as `_evaluated` does."""
    key = key_digest(operation.key) if operation.key else b""
    if key and (before := answers.find(key, operation, now_us)) is not None:
        return Applied(before)
    time_us = decode_tick(operation.payload, detector.limits)
    clock_us = detector.clock_us
    answer = tick(detector, time_us, between)
    if detector.clock_us == clock_us:
        # The clock never goes back, so a repeated request gets the same answer even without a stored one.
        return Applied(answer)
    detector.ticks += 1
    given = _given(operation, answer, answers, now_us)
    return Applied(answer, entries.Ticked(time_us, operation.payload if given else b"", given))


def _ticked_if_due(detector: Detector, now_us: int, between: Callable[[], None]) -> Applied:
    """Move the clock to the present time if something is due. The answer is empty."""
    due_us = due_of(detector)
    if due_us is None or due_us > now_us:
        return Applied(Done(b"{}"))
    detector.tick(now_us, between)
    detector.ticks += 1
    return Applied(Done(b"{}"), entries.Ticked(now_us))


def _lines_evaluated(detector: Detector, operation: Operation, between: Callable[[], None]) -> Applied:
    seen_before = detector.events_seen
    answer, refused = evaluate_lines(detector, operation.payload, between)
    if detector.events_seen == seen_before:
        return Applied(answer)
    return Applied(answer, entries.EvaluatedLines(operation.payload, refused))


def _related(
    detector: Detector, operation: Operation, now_us: int
) -> tuple[dict[str, Any], entries.JournalEntry | None, list[Entry]] | None:
    """Execute an operation on relations; return None for any other."""
    payload = operation.payload
    match operation.kind:
        case operations.RELATIONS:
            return (
                {"relations": [_shown(name, one) for name, one in sorted(detector.stored.items())]},
                None,
                [],
            )
        case operations.RELATION:
            asked = msgspec.json.decode(payload, type=NamedRelation)
            page = detector.relation_page(asked.name, asked.after, asked.limit)
            return page._asdict(), None, []
        case operations.CHANGE_RELATION:
            entry = entries.RelationChanged(payload, now_us // 1000)
            before = detector.stored.copy()
            name, relation = change_relation(detector, payload, entry.changed_ms)
            return _shown(name, relation), None if relation is before[name] else entry, []
        case operations.DELETE_RELATION:
            name = msgspec.json.decode(payload, type=NamedRelation).name
            detector.delete_relation(name)
            return {"name": name}, entries.RelationDeleted(name), []
        case _:
            return None


def _shown(name: str, relation: StoredRelation) -> dict[str, Any]:
    return {
        "name": name,
        "tuples": len(relation),
        "arity": relation.arity,
        "changed_ms": relation.changed_ms,
    }


def _ruled(
    detector: Detector, detector_id: str, operation: Operation, between: Callable[[], None]
) -> tuple[dict[str, Any], entries.JournalEntry | None, list[Entry]]:
    match operation.kind:
        case operations.RULE:
            rule = detector.rule(_named(operation))
            return rule_with_text(rule, detector_id), None, []
        case operations.ADD_RULE:
            added = msgspec.json.decode(operation.payload, type=AddRule)
            rule_id = detector.add_rule(**members_of(added))
            rule = detector.rule(rule_id)
            messages = condition_messages(rule.condition, detector.stored)
            messages += equality_messages(detector.equal_rule(rule))
            return {"id": rule_id}, entries.rule_put(rule, operation.by), messages
        case operations.CHANGE_RULE:
            change = msgspec.json.decode(operation.payload, type=ChangeRule)
            before = detector.rule(change.rule_id)
            changed = detector.change_rule(**members_of(change))
            is_changed = change != ChangeRule(change.rule_id)
            entry = entries.rule_put(changed, operation.by, change.history) if is_changed else None
            given = change.condition is not None
            equal = detector.equal_rule(changed) if given or before.shadow else None
            messages = change_messages(
                changed,
                before,
                change.history,
                condition_given=given,
                stored=detector.stored,
                equal=equal,
            )
            return rule_as_sent(changed, detector_id), entry, messages
        case operations.PUT_RULES | operations.PUT_RULES_DRY:
            return put_rules(detector, operation, between)
        case operations.VERSIONS:
            found = detector.rule(_named(operation))
            return {"versions": [*detector.versions.of(found, detector_id)]}, None, []
        case operations.REMOVE_RULE:
            rule_id = _named(operation)
            detector.remove_rule(rule_id)
            return {"id": rule_id}, entries.RuleRemoved(rule_id, operation.by), []
        case operations.PROMOTE:
            rule = detector.promote(_named(operation))
            return rule_as_sent(rule, detector_id), entries.DraftPromoted(rule.id, operation.by), []
        case unknown:
            raise AssertionError(f"no operation is called {unknown!r}")


def _named(operation: Operation) -> str:
    return msgspec.json.decode(operation.payload, type=NamedRule).rule_id
