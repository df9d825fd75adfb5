"""Explanations as text: for each rule the tree of its condition, and what would change its verdict."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from api.cli.printing.terminal import on_one_line
from api.cli.recordings.times import iso
from rule_detector_client import ExplainedNode, ExplainedRule

_SECONDS_A_MINUTE = 60
_SECONDS_AN_HOUR = 3_600


def lines_of(rule: ExplainedRule, time_us: int) -> Iterator[str]:
    """Yield the lines about a rule at an event, whose time is given in microseconds."""
    yield f"{on_one_line(rule.name)}: {'fires' if rule.verdict else 'does not fire'}"
    yield from node_lines(rule.node, time_us, "  ")
    fires = "it would not fire" if rule.verdict else "it would fire"
    match rule.why_not:
        case None:
            yield "  no predicates at this event would turn that"
        case [one]:
            yield f"  {fires} if this turned: {one}"
        case several:
            yield f"  {fires} if these turned: {'; '.join(several)}"
    if rule.fires_ms is not None:
        yield f"  {_ahead(rule.fires_ms, time_us)} if the event comes and then nothing else"


def standing_lines(found: Mapping[str, Any], clock_us: int) -> Iterator[str]:
    """Yield the lines about the standing verdict of a rule, at the detector's clock."""
    yield on_one_line(found["name"])
    yield from node_lines(msgspec.convert(found["node"], ExplainedNode), clock_us, "  ")
    if "fires_ms" in found:
        yield f"  {_ahead(found['fires_ms'], clock_us)} if no event comes"


def _ahead(fires_ms: float, now_us: int) -> str:
    fires_us = round(fires_ms * 1_000)
    return f"it fires by time at {iso(fires_us)}, after {_duration(fires_us - now_us)},"


def node_lines(node: ExplainedNode, time_us: int, indent: str) -> Iterator[str]:
    """Yield the lines about a condition and those inside it."""
    parts = [f"{indent}{'true ' if node.verdict else 'false'}  {node.text}"]
    if node.found is not None:
        parts.append(f"found {_pairs(node.found) if isinstance(node.found, dict) else f'{node.found:g}'}")
    if node.values:
        parts.append(_pairs(node.values))
    if node.key:
        parts.append(f"slice {_pairs(node.key)}")
    if node.witness_ms is not None:
        parts.append(f"settled at {_moment(node.witness_ms, time_us)}")
    if node.since_ms not in {None, node.witness_ms} and (since_us := round(node.since_ms * 1_000)) < time_us:
        parts.append(f"at least since {iso(since_us)}")
    if node.until_ms is not None:
        parts.append(f"until {iso(round(node.until_ms * 1_000))}")
    if node.note:
        parts.append(node.note)
    if not node.verdict and len(parts) == 1 and not node.nodes:
        parts.append("missing")
    yield on_one_line("; ".join(parts))
    for inner in node.nodes:
        yield from node_lines(inner, time_us, indent + "  ")


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}" for name, value in values.items()
    )


def _moment(time_ms: float, now_us: int) -> str:
    """Return the time of an event, and how long before the explained one it was."""
    time_us = round(time_ms * 1_000)
    ago_us = now_us - time_us
    # A late event is explained at the detector's clock, which can be after its own time.
    return f"{iso(time_us)}, {_duration(ago_us)} before" if ago_us > 0 else iso(time_us)


def _duration(duration_us: int) -> str:
    seconds = duration_us / 1_000_000
    if seconds < _SECONDS_A_MINUTE:
        return f"{seconds:g} s"
    if seconds < _SECONDS_AN_HOUR:
        return f"{seconds / _SECONDS_A_MINUTE:.3g} min"
    return f"{seconds / _SECONDS_AN_HOUR:.3g} h"
