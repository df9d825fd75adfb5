"""An explanation as plain data, for JSON. Times are in milliseconds since 1970."""

import json
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any, Final

from engine.evaluation.explanation.nodes import ExplainedRule, Node
from engine.evaluation.times import milliseconds
from engine.language.text.printer import format as format_condition


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
    """Return a node without the members that are not known.

    JSON has no infinities, to which a sum may come: then `found` is absent, and `note` says so.
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
"""About the bytes of a node besides its text, values, key and note."""


def trimmed(node: Node, bytes_max: int) -> Node:
    """Return a node without the nodes that come after about so many bytes; notes say where."""
    return _Trimming(bytes_max).node(node)


class _Trimming:
    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max

    def node(self, node: Node) -> Node:
        """Return a node, with those inside it as far as there is room."""
        shown = [node.text, dict(node.values), dict(node.key or {}), _found(node), node.note]
        self._left -= _NODE_BYTES + len(json.dumps(shown, ensure_ascii=False, allow_nan=False).encode())
        if not node.nodes:
            return node
        if self._left <= 0:
            return replace(node, nodes=(), note="; ".join(filter(None, (node.note, LEFT_OUT))))
        return replace(node, nodes=tuple([self.node(inner) for inner in node.nodes]))
