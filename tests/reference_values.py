"""The executable specification of names and values: look-up, and equality that keeps types apart.

Shares no code with the engine. None is how a missing fact reads, as JSON's null does.
"""

from collections.abc import Iterable, Mapping
from typing import Any


def look_up(name: str, fields: Mapping[str, Any], variables: Mapping[str, Any]) -> Any:
    """Give the value of a name: the whole of it as one key, or else each of its parts in turn."""
    known, name = (variables, name[1:]) if name.startswith("$") else (fields, name)
    if name in known:
        return known[name]
    found: Any = known
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


KINDS = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}


def kind(value: Any) -> str:
    """Give the JSON type of a value. Python's True is an int, JSON's is no number."""
    return KINDS.get(type(value)) or ("object" if isinstance(value, dict) else "array")


def scalar(value: Any) -> bool:
    """Tell strings, numbers and booleans from all else."""
    return kind(value) in ("string", "number", "boolean")


def equal(one: Any, other: Any) -> bool:
    """Typed equality: `1` is `1.0`, but neither `true` nor `"1"`."""
    both = kind(one)
    if both != kind(other):
        return False
    if both == "array":
        return len(one) == len(other) and all(map(equal, one, other))
    if both == "object":
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return bool(one == other)


def among(value: Any, values: Iterable[Any]) -> bool:
    """Tell whether some element equals the value."""
    return any(equal(value, element) for element in values)
