"""Executes a change of many rules on a detector."""

from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.rule_book.changes.differences import differences
from engine.evaluation.rule_book.changes.many_rules import RulesChange, WantedRule
from engine.evaluation.rule_book.meanings import meaning_of
from engine.evaluation.rule_book.rule_messages import change_messages, condition_messages, equality_messages
from engine.language.diagnostics import Entry, quoted
from engine.runtime.contract.requests.operations import PUT_RULES_DRY, Operation, PutRules, members_of
from engine.runtime.detector.persistence.journal_entries import JournalEntry, RulesChanged, rule_put

MESSAGES_MAX: Final = 100
"""The maximum number of messages about a change of many rules."""


def put_rules(
    detector: Detector, operation: Operation, between: Callable[[], None]
) -> tuple[dict[str, Any], JournalEntry | None, list[Entry]]:
    """Execute a PutRules; return the result, the journal entry, and messages. Raises Refusal.

    A dry run, or a change without effect, gives no entry.
    """
    given = msgspec.json.decode(operation.payload, type=PutRules)
    wanted = [WantedRule(**members_of(rule)) for rule in given.rules]
    change = detector.rules_change(wanted, prune=given.prune, between=between)
    result = {
        "created": [rule.name for rule in change.created],
        "changed": [rule.name for _, rule in change.changed],
        "removed": [rule.name for rule in change.removed],
        "unchanged": [rule.name for rule in change.unchanged],
    }
    if given.details:
        found = []
        for one in differences(change.changed, change.keeping):
            found.append(msgspec.to_builtins(one))
            between()
        result["details"] = found
    messages = list(islice(_messages(detector, change), MESSAGES_MAX))
    if operation.kind == PUT_RULES_DRY or not (change.put or change.removed):
        return result, None, messages
    removed = tuple([rule.id for rule in change.removed])
    detector.change_rules(change.put, removed, between)
    put = tuple([rule_put(rule, history=history) for rule, history in change.put])
    return result, RulesChanged(put, removed, operation.by), messages


def _messages(detector: Detector, change: RulesChange) -> Iterator[Entry]:
    """Yield the messages about the rules that a change adds or changes, each with the rule's name."""
    going = {rule.id for rule in (*change.removed, *(before for before, _ in change.changed))}
    put: dict[Hashable, Any] = {}
    """The rules that are put, by the meanings of their conditions."""
    for before, rule in (*change.changed, *((None, rule) for rule in change.created)):
        equal = None
        if not rule.shadow:
            first = put.setdefault(meaning_of(rule.condition), rule)
            equal = detector.equal_rule(rule, going) if first is rule else first
        if before is None:
            said = condition_messages(rule.condition, detector.stored) + equality_messages(equal)
        else:
            is_given = rule.condition != before.condition
            equal = equal if is_given or before.shadow else None
            said = change_messages(
                rule,
                before,
                change.history(rule),
                condition_given=is_given,
                stored=detector.stored,
                equal=equal,
            )
        yield from (entry._replace(message=f"{quoted(rule.name)}: {entry.message}") for entry in said)
