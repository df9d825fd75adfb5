"""The body of a change of many rules: from JSON to the operation, with every defect at its place."""

from dataclasses import replace
from functools import partial
from typing import Final

import msgspec

from api.schema.messages.catalogue import given
from api.schema.messages.rules import RulesToPut, RuleToPut
from engine.evaluation.rules import Labels
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.violations import MORE_DEFECTS, VIOLATIONS_MAX
from engine.language.diagnostics import Entry, Refusal
from engine.language.json.writer import json_bytes
from engine.language.limits import Limits
from engine.runtime.contract.requests.operations import Operation, PutRule, put_rules

_NESTED: Final = 2
"""How many objects and arrays are around a rule."""


class _Apart(RulesToPut, forbid_unknown_fields=True):
    """The body with its rules as JSON, each of which is decoded by itself: all together may be too large."""

    rules: list[msgspec.Raw]  # type: ignore[assignment]


def put_rules_operation(body: bytes, limits: Limits) -> Operation:
    """Return the operation of a body. Raises Refusal."""
    around = replace(limits, event_values_max=limits.body_values_max)
    apart = decode(body, _Apart, around, apart=partial(_not_deep, limits.body_depth_max), has_raw=True)
    rules: list[PutRule] = []
    defects: list[Entry] = []
    for place, raw in enumerate(apart.rules):
        try:
            rule = decode(bytes(raw), RuleToPut, limits, f"rules[{place}]", _NESTED)
        except Refusal as refusal:
            defects += refusal.entries
            if len(defects) > VIOLATIONS_MAX:
                raise Refusal(*defects[:VIOLATIONS_MAX], MORE_DEFECTS) from None
            continue
        members = (rule.name, rule.condition, rule.notify, rule.shadow, given(rule.draftOf), rule.description)
        labels = _labels(rule.labels) if rule.labels else "{}"
        acting = (rule.timed, rule.every_secs, given(rule.every_by))
        rules.append(PutRule(*members, labels, *acting, rule.enabled, given(rule.history)))
    if defects:
        raise Refusal(*defects)
    return put_rules(rules, prune=apart.prune, dry_run=apart.dryRun, details=apart.details)


def _not_deep(depth_max: int, apart: _Apart) -> int:
    """Return how many objects and arrays are in rules that have too few of them to nest too deep."""
    counts = (raw.count(b"{") + raw.count(b"[") for raw in map(bytes, apart.rules))
    return sum(count for count in counts if count <= depth_max - _NESTED)


def _labels(labels: Labels) -> str:
    try:
        return msgspec.json.encode(labels).decode()
    except OverflowError:
        # It has an integer of more than 64 bits.
        return json_bytes(labels).decode()
