"""Leaves nodes out of an explanation that would be too large as JSON."""

import json
from dataclasses import replace
from typing import Final

from engine.evaluation.explanation.nodes import Node

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
        shown = [node.text, dict(node.values), dict(node.key or {}), node.note]
        self._left -= _NODE_BYTES + len(json.dumps(shown, ensure_ascii=False, allow_nan=False).encode())
        if not node.nodes:
            return node
        if self._left <= 0:
            return replace(node, nodes=(), note="; ".join(filter(None, (node.note, LEFT_OUT))))
        return replace(node, nodes=tuple([self.node(inner) for inner in node.nodes]))
