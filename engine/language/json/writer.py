"""Writes conditions as JSON documents."""

import json
from typing import Any, Final

from engine.language.condition import Condition, FactArg, NetworksOf, ScaledFact
from engine.language.forms.table import FORM_OF_NODE
from engine.language.nodes import Node

# The standard library encodes integers of any size, which events and conditions may contain.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def condition_to_document(condition: Condition) -> dict[str, object]:
    """Return the JSON document of a condition, with its members in the documented order.

    A condition that was read from a document returns that document: nothing is added, and numbers keep their
    types.
    """
    return _of_node(condition)


def _of_node(node: Node) -> dict[str, object]:
    form = FORM_OF_NODE[type(node)]
    members = {
        field: _document(value) for field in form.fields if (value := getattr(node, field)) is not None
    }
    return {form.name: members.popitem()[1] if form.is_bare else members}


def _document(value: Any) -> object:
    if isinstance(value, tuple):
        return [_document(element) for element in value]
    if isinstance(value, FactArg):
        return {"fact": value.fact}
    if isinstance(value, NetworksOf):
        return {"relation": value.relation}
    if isinstance(value, ScaledFact):
        return {"fact": value.fact} | ({} if value.times is None else {"times": value.times})
    return _of_node(value) if isinstance(value, Node) else value


def json_bytes(document: object) -> bytes:
    """Return plain data as JSON."""
    return _ENCODER.encode(document).encode()
