"""An explanation: the tree of each rule's condition, with the reason for each verdict at one event.

A temporal node's verdict depends on time through its window. Every other verdict follows from those of its
members, so it can change several times.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Final, NamedTuple

from engine.evaluation.rules import Rule
from engine.evaluation.times import milliseconds
from engine.language.condition import Condition
from engine.language.diagnostics import Entry
from engine.language.text.printer import format as format_condition


class Future(NamedTuple):
    """A verdict now, and when it changes if nothing else happens."""

    verdict: bool
    flips: tuple[int, ...] = ()
    """The last times in microseconds before each change, in ascending order."""
    known_us: int | None = None
    """The time up to which the changes are known; None if all are known."""

    @property
    def until_us(self) -> int | None:
        """The last time at which the verdict is known to be the same; None if it stays for ever."""
        return self.flips[0] if self.flips else self.known_us


def negated(inner: Future) -> Future:
    """Return the future of `not`."""
    return inner._replace(verdict=not inner.verdict)


def every(members: Sequence[Future]) -> Future:
    """Return the future of `all`."""
    if any(not member.verdict and member.until_us is None for member in members):
        return Future(verdict=False)
    known_us = min([member.known_us for member in members if member.known_us is not None], default=None)
    verdicts = [member.verdict for member in members]
    false_count = verdicts.count(False)
    verdict = before = not false_count
    flips: list[int] = []
    flipping = sorted((time_us, place) for place, member in enumerate(members) for time_us in member.flips)
    for number, (time_us, place) in enumerate(flipping):
        false_count += 1 if verdicts[place] else -1
        verdicts[place] = not verdicts[place]
        is_last_at_time = number + 1 == len(flipping) or flipping[number + 1][0] != time_us
        if is_last_at_time and before is bool(false_count):
            before = not false_count
            flips.append(time_us)
    if known_us is None:
        return Future(verdict, tuple(flips))
    return Future(verdict, tuple([time_us for time_us in flips if time_us < known_us]), known_us)


def some(members: Sequence[Future]) -> Future:
    """Return the future of `any`."""
    return negated(every([negated(member) for member in members]))


Decide = Callable[[tuple[bool, ...]], bool]
"""Returns the verdict of a node if its members had these truths at the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a condition at an event."""

    condition: Condition
    future: Future
    nodes: tuple["Node", ...] = ()
    """The nodes of its members. A `keyed` without a key has none, because it has no history."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The values that a predicate looked up, by name; long ones are cut. A name that is absent is missing."""
    key: Mapping[str, Any] | None = None
    """The slice of `keyed`: the values of all keys down to this node, the outermost first."""
    witness_us: int | None = None
    """The time of the event that settles a temporal node; None if no single event does."""
    found: float | Mapping[str, Any] | None = None
    """The number that a member compares: of a count, no more than the comparison needs; of a sum out of the
    range of a double, an infinity or NaN. For a comparison of terms, their values by text."""
    since_us: int | None = None
    """All later events so far had this verdict. Known only between two events; None if unknown."""
    note: str | None = None
    decide: Decide | None = field(default=None, repr=False, compare=False)
    """None for a node without members."""

    @property
    def verdict(self) -> bool:
        """Whether the node is true at the event."""
        return self.future.verdict

    @property
    def until_us(self) -> int | None:
        """The last time at which the verdict stays if nothing else happens; None if it stays for ever."""
        return self.future.until_us

    @property
    def text(self) -> str:
        """The canonical text of the condition."""
        return format_condition(self.condition)

    def noted(self, remark: str) -> "Node":
        """Return the node with one more remark."""
        return replace(self, note="; ".join(filter(None, (self.note, remark))))


@dataclass(frozen=True, slots=True)
class ExplainedRule:
    """A rule explained at an event."""

    rule: Rule
    node: Node
    why_not: tuple[Condition, ...] | None
    """The smallest set of predicates that some event could change, and that would turn the verdict if each
    changed its truth at this event. None if there is no such set, because the past or a missing key
    decides."""
    fires_us: int | None = None
    """When the timed rule fires by time for the keys of the event, if the event comes and then nothing else.
    None if it does not, or not within some hundred changes by time."""

    @property
    def verdict(self) -> bool:
        """Whether the rule fires."""
        return self.node.verdict


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explained event."""

    time_us: int
    """The time at which it would be evaluated."""
    rules: tuple[ExplainedRule, ...]
    """The rules by priority."""
    messages: tuple[Entry, ...]


def rule_document(explained: ExplainedRule) -> dict[str, Any]:
    """Return an explained rule: `{ruleId, name, verdict, node, shadow?, why_not?, fires_ms?}`."""
    document = {
        "ruleId": explained.rule.id,
        "name": explained.rule.name,
        "verdict": explained.verdict,
        "node": node_document(explained.node),
    }
    if explained.rule.shadow:
        document["shadow"] = True
    if explained.why_not is not None:
        document["why_not"] = [*map(format_condition, explained.why_not)]
    if explained.fires_us is not None:
        document["fires_ms"] = milliseconds(explained.fires_us)
    return document


def node_document(node: Node) -> dict[str, Any]:
    """Return a node, without members that are unknown.

    JSON has no infinities, which a sum may reach: then `found` is absent, and `note` says so.
    """
    document: dict[str, Any] = {"text": node.text, "verdict": node.verdict}
    if node.nodes:
        document["nodes"] = [*map(node_document, node.nodes)]
    if node.values:
        document["values"] = dict(node.values)
    if node.key is not None:
        document["key"] = dict(node.key)
    if node.witness_us is not None:
        document["witness_ms"] = milliseconds(node.witness_us)
    if node.until_us is not None:
        document["until_ms"] = milliseconds(node.until_us)
    if isinstance(node.found, Mapping):
        document |= {"found": dict(node.found)} if node.found else {}
    elif node.found is not None and isfinite(node.found):
        document["found"] = node.found
    if node.since_us is not None:
        document["since_ms"] = milliseconds(node.since_us)
    if node.note is not None:
        document["note"] = node.note
    return document


def _found(node: Node) -> Any:
    return dict(node.found) if isinstance(node.found, Mapping) else None


# -- explanations that would be too large --------------------------------------------------------------------

LEFT_OUT: Final = "its nodes are left out, because the explanation has reached its limit"

_NODE_BYTES: Final = 200
"""The approximate size of a node besides its text, values, key and note."""


def trimmed(node: Node, bytes_max: int) -> Node:
    """Return a node without the nodes inside that exceed a size of about `bytes_max`; notes say where."""
    return _Trimming(bytes_max).node(node)


class _Trimming:
    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max

    def node(self, node: Node) -> Node:
        """Return a node, with as many of the nodes inside it as there is room for."""
        shown = [node.text, dict(node.values), dict(node.key or {}), _found(node), node.note]
        self._left -= _NODE_BYTES + len(json.dumps(shown, ensure_ascii=False, allow_nan=False).encode())
        if not node.nodes:
            return node
        if self._left <= 0:
            return replace(node.noted(LEFT_OUT), nodes=())
        return replace(node, nodes=tuple([self.node(inner) for inner in node.nodes]))
